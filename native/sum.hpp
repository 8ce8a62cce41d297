// Sums without loss.
#pragma once

namespace tidegraph {

// A sum, what rounding took from it, and a bound on the error of the two together.
struct Sum {
  double value = 0, rest = 0, lost = 0;
  void add(double more) {
    const double sum = value + more, added = sum - value;
    rest += (value - (sum - added)) + (more - added);
    lost += 0x1p-53 * (rest < 0 ? -rest : rest);
    value = sum + rest;
    rest -= value - sum;
  }
  // Whether the value is right to the last place.
  bool exact() const { return lost <= 0x1p-54 * value; }
};

}  // namespace tidegraph
