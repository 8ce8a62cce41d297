#include "view.hpp"

namespace tidegraph {

std::size_t View::bytes() const {
  return degree_.size() * sizeof(double) + carry_.size() * sizeof(Carry) +
         slot_.size() * sizeof(std::uint32_t);
}

void View::begin() {
  for (const Degree& degree : moved_) slot_[degree.node] = 0;
  moved_.clear();
  entries_.clear();
  terms_.clear();
}

void View::append(std::size_t count) {
  if (degree_.empty()) degree_.reserve(count);
  degree_.resize(degree_.size() + count);
  if (!carry_.empty()) carry_.resize(degree_.size());
  if (!slot_.empty()) slot_.resize(degree_.size());
}

void View::touch(Node node) {
  if (slot_.empty()) slot_.resize(degree_.size());
  if (slot_[node]) return;
  moved_.push_back({node, 0, 0, degree_[node], degree_[node]});
  slot_[node] = std::uint32_t(moved_.size());
}

void View::change_row(Node row, Node other, double before, double after) {
  touch(row);
  Degree& degree = moved_[slot_[row] - 1];
  // Carry what rounding takes from the degree, so that a deletion removes exactly what its
  // insertion added.
  const Carry carry = carry_.empty() ? Carry{} : carry_[row];
  Sum sum{degree_[row], carry.rest, carry.lost};
  sum.add(after);
  sum.add(-before);
  put(row, sum);
  degree.after = sum.value;
  ++degree.last;
  entries_.push_back({slot_[row] - 1, {other, after - before}});
}

void View::change_edge(Node src, Node dst, double before, double after) {
  if (before == after) return;
  if (src == dst) {
    before *= self_edges_;
    after *= self_edges_;
  }
  if (symmetric_) {
    change_row(src, dst, before, after);
    if (src != dst) change_row(dst, src, before, after);
  } else if (direction_ == Direction::out) {
    change_row(src, dst, before, after);
  } else {
    change_row(dst, src, before, after);
  }
}

void View::put(Node node, const Sum& degree) {
  degree_[node] = degree.value;
  if ((degree.rest != 0 || degree.lost != 0) && carry_.empty()) carry_.resize(degree_.size());
  if (!carry_.empty()) carry_[node] = {degree.rest, degree.lost};
}

void View::set_degree(Node node, const Sum& degree) {
  put(node, degree);
  if (!slot_.empty() && slot_[node]) moved_[slot_[node] - 1].after = degree.value;
}

void View::rescale_degree(Node node, const Sum& degree) {
  const double before = degree_[node];
  set_degree(node, degree);
  rescaled_degrees_.push_back({before, degree_[node]});
}

void View::finish() {
  std::uint32_t total = 0;
  for (Degree& degree : moved_) {
    degree.first = total;
    total += degree.last;
    degree.last = degree.first;
  }
  terms_.resize(total);
  for (const Entry& entry : entries_) terms_[moved_[entry.slot].last++] = entry.term;
}

void View::archive(Archive& archive, const std::string& name) {
  archive.block(name + ".degree", degree_.data(), degree_.size());
  std::vector<double> parts;
  for (const Carry& each : carry_) parts.insert(parts.end(), {each.rest, each.lost});
  archive.vector(name + ".carry", parts);
  if (!parts.empty() && parts.size() != 2 * degree_.size())
    throw ArchiveError(name + ".carry does not match the nodes");
  carry_.resize(parts.size() / 2);
  for (std::size_t node = 0; node < carry_.size(); ++node)
    carry_[node] = {parts[2 * node], parts[2 * node + 1]};
}

}  // namespace tidegraph
