#include "graph.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

namespace tidegraph {
namespace {

// What one step of the fraction of a weight counts.
double fraction_unit(float weight) {
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(weight) & 0x7f800000u;
  return double(std::bit_cast<float>(exponent)) * std::ldexp(1.0, -23 - kFractionBits);
}

std::int32_t fraction_of(double weight) {
  const float near = float(weight);
  return double(near) == weight
             ? 0
             : std::int32_t(std::nearbyint((weight - double(near)) / fraction_unit(near)));
}

constexpr std::uint32_t kLargestCount = 1 << 24;  // up to which all are float32 numbers
constexpr std::size_t kPageWords = 1 << 18;       // 1 MiB
constexpr std::size_t kOwnPageWords = 1 << 12;  // from here on a block is an allocation of its own

// Capacities a list may have: growing by a quarter, and long lists by an eighth, keeps the average
// slack near a tenth.
const std::vector<std::uint32_t>& capacities() {
  static const std::vector<std::uint32_t> table = [] {
    constexpr std::uint64_t kLong = 1024;
    std::vector<std::uint32_t> sizes;
    for (std::uint64_t size = 1; size < 0xffffffffu;
         size = size < 8 ? size + 1 : (size + size / (size < kLong ? 4 : 8) + 3) / 4 * 4)
      sizes.push_back(std::uint32_t(size));
    return sizes;
  }();
  return table;
}

std::uint32_t class_for(std::uint32_t size) {
  const auto& table = capacities();
  return std::uint32_t(std::lower_bound(table.begin(), table.end(), size) - table.begin());
}

// The index of a long list: open addressing with linear probing over positions, at most 80 % full.
// Positions take 16 bits where the capacity allows it.
std::size_t slots_for(std::uint32_t capacity) {
  return capacity > Adjacency::kScan ? std::size_t(capacity) + capacity / 4 + 1 : 0;
}
bool narrow(std::uint32_t capacity) { return capacity < 0xffff; }

template <class Slot>
class Index {
 public:
  static constexpr Slot kEmpty = Slot(-1);

  Index(std::uint32_t* memory, const Node* ids, std::uint32_t capacity)
      : slots_(reinterpret_cast<Slot*>(memory)), ids_(ids), count_(slots_for(capacity)) {}

  void clear() { std::fill_n(slots_, count_, kEmpty); }
  std::uint32_t find(Node id) const {
    const std::size_t at = locate(id);
    return slots_[at] == kEmpty ? Adjacency::kAbsent : std::uint32_t(slots_[at]);
  }
  void insert(std::uint32_t position) {
    std::size_t at = home(ids_[position]);
    while (slots_[at] != kEmpty) at = next(at);
    slots_[at] = Slot(position);
  }
  // Forgets `id` and closes the gap, so that probing never meets a tombstone.
  void erase(Node id) {
    std::size_t hole = locate(id);
    for (std::size_t at = next(hole); slots_[at] != kEmpty; at = next(at)) {
      if (distance(home(ids_[slots_[at]]), at) >= distance(hole, at)) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = kEmpty;
  }
  void relabel(Node id, std::uint32_t position) { slots_[locate(id)] = Slot(position); }

 private:
  std::size_t home(Node id) const {
    std::uint32_t hash = id * 0x9e3779b1u;
    hash = (hash ^ (hash >> 15)) * 0x85ebca77u;
    return std::size_t((std::uint64_t(hash ^ (hash >> 13)) * count_) >> 32);
  }
  std::size_t next(std::size_t at) const { return at + 1 == count_ ? 0 : at + 1; }
  std::size_t distance(std::size_t from, std::size_t to) const {
    return to >= from ? to - from : to + count_ - from;
  }
  std::size_t locate(Node id) const {
    std::size_t at = home(id);
    while (slots_[at] != kEmpty && ids_[slots_[at]] != id) at = next(at);
    return at;
  }

  Slot* slots_;
  const Node* ids_;
  std::size_t count_;
};

}  // namespace

double weight_at(const Entries& entries, std::uint32_t position) {
  if (!entries.weights) return 1;
  const float weight = entries.weights[position];
  if (!entries.fractions) return double(weight);
  return double(weight) + double(entries.fractions[position]) * fraction_unit(weight);
}

// Calls work with the index of a list in the width it has; does nothing where the list is short
// enough to scan.
template <class Work>
void Adjacency::with_index(const List& list, Work work) const {
  if (list.capacity <= kScan) return;
  std::uint32_t* const memory = list.block + index_place(list.capacity);
  if (narrow(list.capacity))
    work(Index<std::uint16_t>(memory, list.block, list.capacity));
  else
    work(Index<std::uint32_t>(memory, list.block, list.capacity));
}

std::uint32_t* Arena::take(std::size_t words, std::size_t size_class) {
  live_ += words;
  if (words >= kOwnPageWords) return new std::uint32_t[words];
  if (size_class < free_.size() && !free_[size_class].empty()) {
    std::uint32_t* const block = free_[size_class].back();
    free_[size_class].pop_back();
    idle_ -= words;
    return block;
  }
  if (left_ < words) {
    idle_ += left_;
    pages_.emplace_back(new std::uint32_t[kPageWords]);
    next_ = pages_.back().get();
    left_ = kPageWords;
  }
  std::uint32_t* const block = next_;
  next_ += words;
  left_ -= words;
  return block;
}

void Arena::give(std::uint32_t* block, std::size_t words, std::size_t size_class) {
  live_ -= words;
  if (words >= kOwnPageWords) {
    delete[] block;
    return;
  }
  if (free_.size() <= size_class) free_.resize(size_class + 1);
  free_[size_class].push_back(block);
  idle_ += words;
}

template <class Visit>
void Adjacency::for_own_lists(Visit visit) {
  for (std::size_t node = 0; node < lists_.size(); ++node) visit(Node(node), lists_[node]);
  for (std::size_t page = 0; page < pages_.size(); ++page) {
    if (!pages_[page]) continue;
    for (std::size_t i = 0; i < kPageLists; ++i)
      if (pages_[page][i].size != kUntouched) visit(Node(page * kPageLists + i), pages_[page][i]);
  }
}

Adjacency::Adjacency(const Adjacency& other)
    : layers_(other.layers_),
      fine_(other.fine_),
      nodes_(other.nodes_),
      lists_(other.lists_),
      base_(other.base_),
      merged_(other.merged_) {
  resize(nodes_);
  for (std::size_t page = 0; page < other.pages_.size(); ++page)
    if (other.pages_[page])
      std::copy_n(other.pages_[page], kPageLists, &place(Node(page * kPageLists)));
  for_own_lists([&](Node, List& list) {
    if (list.block) move_into(arena_, list, class_for(list.capacity));
  });
}

Adjacency::~Adjacency() { forget_own_lists(); }

void Adjacency::forget_own_lists() {
  for_own_lists([&](Node, const List& list) {
    if (list.block && words(list.capacity) >= kOwnPageWords) delete[] list.block;
  });
  arena_ = Arena();
  page_memory_.clear();
  std::fill(pages_.begin(), pages_.end(), nullptr);
}

Adjacency::Extent Adjacency::extent() const {
  Extent found;
  found.plain = !base_.weights;
  found.fine = fine_;
  for (std::size_t node = 0; node < nodes_; ++node) {
    const Entries list = entries(Node(node), 0);
    found.entries += list.size;
    for (std::uint32_t e = 0; e < list.size && list.weights && found.plain; ++e)
      found.plain = weight_at(list, e) == 1;
  }
  return found;
}

void Adjacency::merge_into(std::uint64_t* offsets, Node* neighbours, float* weights,
                           std::int32_t* fractions) {
  std::uint64_t end = 0;
  std::vector<bool> merged(nodes_);
  offsets[0] = 0;
  for (std::size_t node = 0; node < nodes_; ++node) {
    const Entries list = entries(Node(node), 0);
    merged[node] = changed(Node(node));
    std::copy_n(list.neighbours, list.size, neighbours + end);
    if (weights && list.weights) std::copy_n(list.weights, list.size, weights + end);
    if (weights && !list.weights) std::fill_n(weights + end, list.size, 1.0f);
    if (fractions && list.fractions) std::copy_n(list.fractions, list.size, fractions + end);
    if (fractions && !list.fractions) std::fill_n(fractions + end, list.size, 0);
    end += list.size;
    offsets[node + 1] = end;
  }
  forget_own_lists();
  base_.nodes = nodes_;
  base_.offsets = offsets;
  base_.neighbours = neighbours;
  base_.weights = weights;
  base_.fractions = fractions;
  merged_ = std::move(merged);
}

void Adjacency::stand_on(const CompactLists& base) {
  base_ = base;
  fine_ = base.fractions != nullptr;
  std::vector<List>().swap(lists_);  // gives its memory back
  resize(std::max(nodes_, base.nodes));
}

void Adjacency::resize(std::size_t nodes) {
  nodes_ = nodes;
  if (!compact()) return lists_.resize(nodes);
  pages_.resize((nodes + kPageLists - 1) / kPageLists, nullptr);
  base_.pages = pages_.data();
}

Entries Adjacency::untouched(Node node) const {
  if (node >= base_.nodes) return {};
  const std::uint64_t first = base_.offsets[node], last = base_.offsets[node + 1];
  return {base_.neighbours + first, base_.weights ? base_.weights + first : nullptr,
          base_.fractions ? base_.fractions + first : nullptr, std::uint32_t(last - first)};
}

List& Adjacency::place(Node node) {
  List*& page = pages_[node / kPageLists];
  if (!page) {
    page_memory_.emplace_back(new List[kPageLists]);
    page = page_memory_.back().get();
    for (std::size_t i = 0; i < kPageLists; ++i) page[i].size = kUntouched;
  }
  return page[node % kPageLists];
}

List& Adjacency::own(Node node) {
  if (!compact()) return lists_[node];
  List& list = place(node);
  if (list.size != kUntouched) return list;
  list = {};
  const Entries old = untouched(node);
  if (old.size == 0) return list;
  // A neighbour that stands there several times becomes one entry of that weight.
  std::uint32_t distinct = 1, repeated = 1, most = 1;
  for (std::uint32_t e = 1; e < old.size; ++e) {
    const bool again = old.neighbours[e] == old.neighbours[e - 1];
    distinct += !again;
    repeated = again ? repeated + 1 : 1;
    most = std::max(most, repeated);
  }
  if (!fine_ && most > kLargestCount) begin_fractions();
  move_into(arena_, list, class_for(distinct));
  for (std::uint32_t e = 0; e < old.size;) {
    const Node neighbour = old.neighbours[e];
    double weight = 0;
    for (; e < old.size && old.neighbours[e] == neighbour; ++e) weight += weight_at(old, e);
    list.block[list.size++] = neighbour;
    put_weight(list, list.size - 1, 0, weight);
  }
  with_index(list, [&](auto index) {
    for (std::uint32_t position = 0; position < list.size; ++position) index.insert(position);
  });
  return list;
}

std::size_t Adjacency::words(std::uint32_t capacity) const {
  const std::size_t slots = slots_for(capacity);
  return index_place(capacity) + (narrow(capacity) ? (slots + 1) / 2 : slots);
}

void Adjacency::move_into(Arena& arena, List& list, std::uint32_t size_class) {
  List moved;
  moved.size = list.size;
  moved.capacity = capacities()[size_class];
  moved.block = arena.take(words(moved.capacity), size_class);
  for (int part = 0; part <= layers_ && list.size; ++part)
    std::memcpy(moved.block + std::size_t(moved.capacity) * std::size_t(part),
                list.block + std::size_t(list.capacity) * std::size_t(part),
                list.size * sizeof(std::uint32_t));
  for (int layer = 0; layer < layers_ && fine_ && list.size; ++layer)
    std::copy_n(fractions_of(list, layer), list.size, fractions_of(moved, layer));
  with_index(moved, [&](auto index) {
    index.clear();
    for (std::uint32_t position = 0; position < moved.size; ++position) index.insert(position);
  });
  list = moved;
}

// Makes room for fractions in all lists.
void Adjacency::begin_fractions() {
  std::vector<std::uint32_t*> own_pages;
  for_own_lists([&](Node, List& list) {
    if (list.block && words(list.capacity) >= kOwnPageWords) own_pages.push_back(list.block);
  });
  fine_ = true;  // from here on sizes count fractions
  Arena fresh;
  for_own_lists([&](Node, List& list) {
    if (!list.block) return;
    const List old = std::exchange(list, List{});
    move_into(fresh, list, class_for(old.capacity));
    list.size = old.size;
    for (int part = 0; part <= layers_; ++part)
      std::memcpy(list.block + std::size_t(list.capacity) * std::size_t(part),
                  old.block + std::size_t(old.capacity) * std::size_t(part),
                  old.size * sizeof(std::uint32_t));
    for (int layer = 0; layer < layers_; ++layer)
      std::fill_n(fractions_of(list, layer), list.size, 0);
    with_index(list, [&](auto index) {
      for (std::uint32_t position = 0; position < list.size; ++position) index.insert(position);
    });
  });
  arena_ = std::move(fresh);
  for (std::uint32_t* const page : own_pages) delete[] page;
}

void Adjacency::put_weight(List& list, std::uint32_t position, int layer, double weight) {
  weights_of(list, layer)[position] = float(weight);
  if (fine_) fractions_of(list, layer)[position] = fraction_of(weight);
}

void Adjacency::set_weight(Node node, std::uint32_t position, int layer, double weight) {
  if (!fine_ && double(float(weight)) != weight) begin_fractions();
  put_weight(own(node), position, layer, weight);
}

Adjacency::Scaled Adjacency::scale(Node node, int layer, double factor, double floor) {
  List& list = own(node);
  const Entries entries = entries_of(list, layer);
  Scaled scaled;
  for (std::uint32_t e = 0; e < list.size; ++e) {
    const double before = weight_at(entries, e), weight = factor * before;
    const bool falls = weight < floor;
    put_weight(list, e, layer, falls ? 0 : weight);
    scaled |= {!falls, falls && before > 0};
  }
  return scaled;
}

void Adjacency::reallocate(Node node, std::uint32_t size_class) {
  List& list = own(node);
  const List old = list;
  if (old.size == 0 && size_class == kAbsent)
    list = {};
  else
    move_into(arena_, list, size_class);
  if (old.block) arena_.give(old.block, words(old.capacity), class_for(old.capacity));
}

std::uint32_t Adjacency::find(Node node, Node neighbour) const {
  const List* const found = changeable(node);
  if (!found) {
    const Entries list = untouched(node);
    const Node* const last = list.neighbours + list.size;
    const Node* const at = merged_.empty() ? std::lower_bound(list.neighbours, last, neighbour)
                                           : std::find(list.neighbours, last, neighbour);
    return at != last && *at == neighbour ? std::uint32_t(at - list.neighbours) : kAbsent;
  }
  const List& list = *found;
  std::uint32_t position = kAbsent;
  if (list.capacity <= kScan) {
    for (std::uint32_t e = 0; e < list.size; ++e)
      if (list.block[e] == neighbour) return e;
  } else {
    with_index(list, [&](auto index) { position = index.find(neighbour); });
  }
  return position;
}

double Adjacency::weight(Node node, std::uint32_t position, int layer) const {
  const Entries list = entries(node, layer);
  double sum = 0;  // of a neighbour that stands there several times, one after the other
  for (std::uint32_t e = position; e < list.size && list.neighbours[e] == list.neighbours[position];
       ++e)
    sum += weight_at(list, e);
  return sum;
}

std::uint32_t Adjacency::insert(Node node, Node neighbour) {
  List& list = own(node);
  if (list.size == list.capacity) reallocate(node, class_for(list.size + 1));
  const std::uint32_t position = list.size++;
  list.block[position] = neighbour;
  for (int layer = 0; layer < layers_; ++layer) put_weight(list, position, layer, 0);
  with_index(list, [&](auto index) { index.insert(position); });
  return position;
}

void Adjacency::assign(Node node, std::span<const Node> neighbours,
                       std::span<const double> weights) {
  if (neighbours.empty()) return;
  const auto is_float = [](double weight) { return double(float(weight)) == weight; };
  if (!fine_ && !std::all_of(weights.begin(), weights.end(), is_float)) begin_fractions();
  List& list = own(node);
  reallocate(node, class_for(std::uint32_t(neighbours.size())));
  list.size = std::uint32_t(neighbours.size());
  std::copy(neighbours.begin(), neighbours.end(), list.block);
  for (std::uint32_t position = 0; position < list.size; ++position)
    put_weight(list, position, 0, weights[position]);
  with_index(list, [&](auto index) {
    for (std::uint32_t position = 0; position < list.size; ++position) index.insert(position);
  });
}

void Adjacency::erase(Node node, std::uint32_t position) {
  List& list = own(node);
  const std::uint32_t last = list.size - 1;
  with_index(list, [&](auto index) {
    index.erase(list.block[position]);
    if (position != last) index.relabel(list.block[last], position);
  });
  for (int part = 0; part <= layers_; ++part) {
    std::uint32_t* const words = list.block + std::size_t(list.capacity) * std::size_t(part);
    words[position] = words[last];
  }
  for (int layer = 0; layer < layers_ && fine_; ++layer) {
    std::int32_t* const fractions = fractions_of(list, layer);
    fractions[position] = fractions[last];
  }
  list.size = last;
  if (last == 0)
    reallocate(node, kAbsent);
  else if (last < list.capacity / 4)
    reallocate(node, class_for(last + last / 4));
}

void Adjacency::tidy() {
  if (arena_.idle_words() <= arena_.live_words() / 4 + kPageWords / 4) return;
  Arena fresh;
  std::size_t own = 0;
  for_own_lists([&](Node, List& list) {
    if (!list.block) return;
    if (words(list.capacity) >= kOwnPageWords)  // its own allocation, never idle
      own += words(list.capacity);
    else
      move_into(fresh, list, class_for(list.size));
  });
  fresh.adopt(own);
  arena_ = std::move(fresh);
}

std::size_t Adjacency::bytes() const {
  return (lists_.size() + page_memory_.size() * kPageLists) * sizeof(List) +
         pages_.size() * sizeof(List*) + merged_.capacity() / 8 +
         (arena_.live_words() + arena_.idle_words()) * sizeof(std::uint32_t);
}

Graph::Graph(std::size_t nodes, bool directed, int layers)
    : directed_(directed), layers_(layers), sources_(layers), targets_(layers) {
  resize(nodes);
}

void Graph::resize(std::size_t nodes) {
  nodes_ = nodes;
  sources_.resize(nodes);
  if (directed_) targets_.resize(nodes);
  if (!self_.empty()) self_.resize(nodes * std::size_t(layers_), 0.0);
}

void Graph::stand_on(const CompactLists& sources, const CompactLists& targets, std::size_t edges) {
  sources_.stand_on(sources);
  if (directed_) targets_.stand_on(targets);
  edges_ = edges;
}

std::size_t Graph::bytes() const {
  return sources_.bytes() + (directed_ ? targets_.bytes() : 0) + self_.size() * sizeof(double);
}

bool Graph::read(Node src, Node dst, std::span<double> weights) const {
  if (src == dst) {
    for (int layer = 0; layer < layers_; ++layer)
      weights[std::size_t(layer)] = self_edge(src, layer);
    return self_edge(src, 0) > 0;
  }
  const std::uint32_t position = sources_.find(dst, src);
  for (int layer = 0; layer < layers_; ++layer)
    weights[std::size_t(layer)] =
        position == Adjacency::kAbsent ? 0.0 : sources_.weight(dst, position, layer);
  return position != Adjacency::kAbsent;
}

namespace {
// True where the entry is new.
bool put(Adjacency& lists, Node node, Node neighbour, std::span<const double> weights) {
  std::uint32_t position = lists.find_to_change(node, neighbour);
  const bool fresh = position == Adjacency::kAbsent;
  if (fresh) position = lists.insert(node, neighbour);
  for (std::size_t layer = 0; layer < weights.size(); ++layer)
    lists.set_weight(node, position, int(layer), weights[layer]);
  return fresh;
}
}  // namespace

void Graph::write(Node src, Node dst, std::span<const double> weights) {
  if (src == dst) {
    edges_ += self_edge(src, 0) == 0;
    std::copy(weights.begin(), weights.end(), own_self(src));
    return;
  }
  edges_ += put(sources_, dst, src, weights);
  put(directed_ ? targets_ : sources_, src, dst, weights);
}

std::optional<std::size_t> Graph::build(std::span<const std::int64_t> src,
                                        std::span<const std::int64_t> dst,
                                        std::span<const double> weight) {
  const auto weight_of = [&](std::size_t row) { return weight.empty() ? 1.0 : weight[row]; };
  const auto accepted = [](double sum) { return sum >= kLightest && sum <= kHeaviest; };
  struct Entry {
    Node neighbour;
    std::uint32_t row;
  };
  // Counting sort of the rows by the node whose list they stand in, then by neighbour, then by row.
  const auto fill = [&](Adjacency& lists, bool at_dst, bool at_src) -> std::optional<std::size_t> {
    std::vector<std::size_t> ends(nodes_ + 1, 0);
    for (std::size_t row = 0; row < src.size(); ++row) {
      if (src[row] == dst[row]) continue;
      ends[std::size_t(dst[row])] += at_dst;
      ends[std::size_t(src[row])] += at_src;
    }
    std::size_t total = 0;
    for (std::size_t& end : ends) total += std::exchange(end, total);
    std::vector<Entry> entries(total);
    for (std::size_t row = 0; row < src.size(); ++row) {
      if (src[row] == dst[row]) continue;
      const std::uint32_t number = std::uint32_t(row);
      if (at_dst) entries[ends[std::size_t(dst[row])]++] = {Node(src[row]), number};
      if (at_src) entries[ends[std::size_t(src[row])]++] = {Node(dst[row]), number};
    }
    std::vector<Node> neighbours;
    std::vector<double> weights;
    for (std::size_t node = 0, first = 0; node < nodes_; first = ends[node++]) {
      const std::span<Entry> list(entries.data() + first, ends[node] - first);
      std::sort(list.begin(), list.end(), [](const Entry& a, const Entry& b) {
        return a.neighbour != b.neighbour ? a.neighbour < b.neighbour : a.row < b.row;
      });
      neighbours.clear();
      weights.clear();
      for (const Entry& entry : list) {
        const bool again = !neighbours.empty() && neighbours.back() == entry.neighbour;
        const double after = (again ? weights.back() : 0.0) + weight_of(entry.row);
        if (!accepted(after)) return entry.row;
        if (again) {
          weights.back() = after;
        } else {
          neighbours.push_back(entry.neighbour);
          weights.push_back(after);
        }
      }
      lists.assign(Node(node), neighbours, weights);
      edges_ += neighbours.size();
    }
    return std::nullopt;
  };
  std::optional<std::size_t> refused = fill(sources_, true, !directed_);
  edges_ = directed_ ? edges_ : edges_ / 2;
  if (directed_ && !refused) {
    const std::size_t edges = edges_;
    refused = fill(targets_, false, true);
    edges_ = edges;
  }
  for (std::size_t row = 0; row < src.size() && !refused; ++row) {
    if (src[row] != dst[row]) continue;
    double& self = *own_self(Node(src[row]));
    edges_ += self == 0;
    self += weight_of(row);
    if (!accepted(self)) refused = row;
  }
  return refused;
}

void Graph::erase(Node src, Node dst) {
  --edges_;
  if (src == dst) {
    std::fill_n(own_self(src), layers_, 0.0);
    return;
  }
  sources_.erase(dst, sources_.find_to_change(dst, src));
  Adjacency& other = directed_ ? targets_ : sources_;
  other.erase(src, other.find_to_change(src, dst));
}

double* Graph::own_self(Node node) {
  if (self_.empty()) self_.resize(nodes_ * std::size_t(layers_), 0.0);
  return self_.data() + self_place(node);
}

Adjacency::Scaled Graph::scale_edges_of(Node node, int layer, double factor, double floor) {
  Adjacency::Scaled scaled = sources_.scale(node, layer, factor, floor);
  if (directed_) scaled |= targets_.scale(node, layer, factor, floor);
  if (self_edge(node, layer) > 0) {
    double& self = own_self(node)[layer];
    self = self * factor < floor ? 0 : self * factor;
    scaled |= {self > 0, self == 0};
  }
  return scaled;
}

void Graph::tidy() {
  sources_.tidy();
  if (directed_) targets_.tidy();
}

void Adjacency::archive(Archive& archive, const std::string& name) {
  // Over a base only what has changed since it was given. Merging leaves no trace.
  std::vector<Node> own;
  std::vector<std::uint32_t> sizes, neighbours;
  std::vector<double> weights;  // layer after layer
  if (!archive.reading()) {
    for (std::size_t node = 0; node < nodes_; ++node)
      if (changed(Node(node))) own.push_back(Node(node));
    for (const Node node : own) {
      const Entries list = entries(node, 0);
      sizes.push_back(list.size);
      neighbours.insert(neighbours.end(), list.neighbours, list.neighbours + list.size);
    }
    for (int layer = 0; layer < layers_; ++layer)
      for (const Node node : own) {
        const Entries list = entries(node, layer);
        for (std::uint32_t e = 0; e < list.size; ++e) weights.push_back(weight_at(list, e));
      }
  }
  if (compact()) archive.vector(name + ".changed", own);
  archive.vector(name + ".sizes", sizes);
  archive.vector(name + ".neighbours", neighbours);
  archive.vector(name + ".weights", weights);
  if (!archive.reading()) return;
  std::uint64_t total = 0;
  for (const std::uint32_t size : sizes) total += size;
  if (sizes.size() != (compact() ? own.size() : nodes()) || total != neighbours.size() ||
      weights.size() != total * std::uint64_t(layers_))
    throw ArchiveError(name + ": the lists do not fit together");
  std::size_t e = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t node = compact() ? own[i] : i;
    if (node >= nodes()) throw ArchiveError(name + ": a list belongs to no node");
    if (compact()) place(Node(node)) = {};  // instead of what the base has
    for (const std::size_t end = e + sizes[i]; e < end; ++e) {
      if (neighbours[e] >= nodes()) throw ArchiveError(name + ": a neighbour is out of range");
      const std::uint32_t position = insert(Node(node), neighbours[e]);
      for (int layer = 0; layer < layers_; ++layer)
        set_weight(Node(node), position, layer, weights[total * std::size_t(layer) + e]);
    }
  }
}

void Graph::archive(Archive& archive, const std::string& name) {
  sources_.archive(archive, name + ".sources");
  if (directed_) targets_.archive(archive, name + ".targets");
  archive.vector(name + ".self_edges", self_);
  if (!archive.reading()) return;
  if (!self_.empty() && self_.size() != nodes_ * std::size_t(layers_))
    throw ArchiveError(name + ": the self-edges do not fit the nodes");
  // Weights tell repeated entries of a base apart from distinct ones: counted by edge.
  edges_ = 0;
  for_each_edge(0, [&](Node, Node, double) { ++edges_; });
}

}  // namespace tidegraph
