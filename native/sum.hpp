#pragma once

namespace tidegraph {

// A sum that remembers what rounding took from it, and how far the two together may be off.
struct Sum {
  double value = 0, rest = 0, lost = 0;
  void add(double more) {
    const double sum = value + more, added = sum - value;
    rest += (value - (sum - added)) + (more - added);
    lost += 0x1p-53 * (rest < 0 ? -rest : rest);
    value = sum + rest;
    rest -= value - sum;
  }
  bool exact() const { return lost <= 0x1p-54 * value; }  // but for the last place
};

}  // namespace tidegraph
