#include "graph.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tidegraph {
namespace {

constexpr std::size_t kPageWords = 1 << 18;     // 1 MiB
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

// Calls work with the index of a list in the width it has; does nothing where the list is short
// enough to scan.
template <class Work>
void with_index(const List& list, int layers, Work work) {
  if (list.capacity <= Adjacency::kScan) return;
  std::uint32_t* const memory = list.block + std::size_t(list.capacity) * std::size_t(1 + layers);
  if (narrow(list.capacity))
    work(Index<std::uint16_t>(memory, list.block, list.capacity));
  else
    work(Index<std::uint32_t>(memory, list.block, list.capacity));
}

}  // namespace

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

Adjacency::Adjacency(const Adjacency& other) : layers_(other.layers_), lists_(other.lists_) {
  for (List& list : lists_)
    if (list.block) move_into(arena_, list, class_for(list.capacity));
}

Adjacency::~Adjacency() {
  for (const List& list : lists_)
    if (list.block && words(list.capacity) >= kOwnPageWords) delete[] list.block;
}

std::size_t Adjacency::words(std::uint32_t capacity) const {
  const std::size_t slots = slots_for(capacity);
  return std::size_t(capacity) * std::size_t(1 + layers_) +
         (narrow(capacity) ? (slots + 1) / 2 : slots);
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
  with_index(moved, layers_, [&](auto index) {
    index.clear();
    for (std::uint32_t position = 0; position < moved.size; ++position) index.insert(position);
  });
  list = moved;
}

void Adjacency::reallocate(Node node, std::uint32_t size_class) {
  List& list = lists_[node];
  const List old = list;
  if (old.size == 0 && size_class == kAbsent)
    list = {};
  else
    move_into(arena_, list, size_class);
  if (old.block) arena_.give(old.block, words(old.capacity), class_for(old.capacity));
}

std::uint32_t Adjacency::find(Node node, Node neighbour) const {
  const List& list = lists_[node];
  std::uint32_t position = kAbsent;
  if (list.capacity <= kScan) {
    for (std::uint32_t e = 0; e < list.size; ++e)
      if (list.block[e] == neighbour) return e;
  } else {
    with_index(list, layers_, [&](auto index) { position = index.find(neighbour); });
  }
  return position;
}

std::uint32_t Adjacency::insert(Node node, Node neighbour) {
  List& list = lists_[node];
  if (list.size == list.capacity) reallocate(node, class_for(list.size + 1));
  const std::uint32_t position = list.size++;
  list.block[position] = neighbour;
  for (int layer = 0; layer < layers_; ++layer)
    list.block[std::size_t(list.capacity) * std::size_t(1 + layer) + position] =
        0;  // the bits of 0.0f
  with_index(list, layers_, [&](auto index) { index.insert(position); });
  return position;
}

void Adjacency::assign(Node node, std::span<const Node> neighbours,
                       std::span<const float> weights) {
  if (neighbours.empty()) return;
  List& list = lists_[node];
  reallocate(node, class_for(std::uint32_t(neighbours.size())));
  list.size = std::uint32_t(neighbours.size());
  std::copy(neighbours.begin(), neighbours.end(), list.block);
  std::copy(weights.begin(), weights.end(), this->weights(node, 0).begin());
  with_index(list, layers_, [&](auto index) {
    for (std::uint32_t position = 0; position < list.size; ++position) index.insert(position);
  });
}

void Adjacency::erase(Node node, std::uint32_t position) {
  List& list = lists_[node];
  const std::uint32_t last = list.size - 1;
  with_index(list, layers_, [&](auto index) {
    index.erase(list.block[position]);
    if (position != last) index.relabel(list.block[last], position);
  });
  for (int part = 0; part <= layers_; ++part) {
    std::uint32_t* const words = list.block + std::size_t(list.capacity) * std::size_t(part);
    words[position] = words[last];
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
  for (List& list : lists_) {
    if (!list.block) continue;
    if (words(list.capacity) >= kOwnPageWords) continue;  // its own allocation, never idle
    move_into(fresh, list, class_for(list.size));
  }
  std::size_t own = 0;
  for (const List& list : lists_)
    if (list.block && words(list.capacity) >= kOwnPageWords) own += words(list.capacity);
  fresh.adopt(own);
  arena_ = std::move(fresh);
}

std::size_t Adjacency::bytes() const {
  return lists_.size() * sizeof(List) +
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
  self_.resize(nodes * std::size_t(layers_), 0.0f);
  present_self_.resize(nodes, 0);
}

std::size_t Graph::bytes() const {
  return sources_.bytes() + (directed_ ? targets_.bytes() : 0) + self_.size() * sizeof(float) +
         present_self_.size();
}

bool Graph::read(Node src, Node dst, std::span<float> weights) const {
  if (src == dst) {
    for (int layer = 0; layer < layers_; ++layer)
      weights[std::size_t(layer)] = self_edge(src, layer);
    return present_self_[src];
  }
  const std::uint32_t position = sources_.find(dst, src);
  for (int layer = 0; layer < layers_; ++layer)
    weights[std::size_t(layer)] =
        position == Adjacency::kAbsent ? 0.0f : sources_.weights(dst, layer)[position];
  return position != Adjacency::kAbsent;
}

namespace {
// True where the entry is new.
bool put(Adjacency& lists, Node node, Node neighbour, std::span<const float> weights) {
  std::uint32_t position = lists.find(node, neighbour);
  const bool fresh = position == Adjacency::kAbsent;
  if (fresh) position = lists.insert(node, neighbour);
  for (std::size_t layer = 0; layer < weights.size(); ++layer)
    lists.weights(node, int(layer))[position] = weights[layer];
  return fresh;
}
}  // namespace

void Graph::write(Node src, Node dst, std::span<const float> weights) {
  if (src == dst) {
    edges_ += !present_self_[src];
    present_self_[src] = 1;
    std::copy(weights.begin(), weights.end(), self_.begin() + std::ptrdiff_t(src) * layers_);
    return;
  }
  edges_ += put(sources_, dst, src, weights);
  put(directed_ ? targets_ : sources_, src, dst, weights);
}

std::optional<Graph::Lost> Graph::build(std::span<const std::int64_t> src,
                                        std::span<const std::int64_t> dst,
                                        std::span<const double> weight) {
  const auto weight_of = [&](std::size_t row) { return weight.empty() ? 1.0 : weight[row]; };
  // Adds up in float32, row by row, as separate additions would.
  const auto add = [](float sum, double more) { return float(double(sum) + more); };
  const auto lost = [](float before, float after) { return after == before || after > 3e38f; };
  struct Entry {
    Node neighbour;
    std::uint32_t row;
  };
  // Counting sort of the rows by the node whose list they stand in, then by neighbour, then by row.
  const auto fill = [&](Adjacency& lists, bool at_dst, bool at_src) -> std::optional<Lost> {
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
    std::vector<float> weights;
    for (std::size_t node = 0, first = 0; node < nodes_; first = ends[node++]) {
      const std::span<Entry> list(entries.data() + first, ends[node] - first);
      std::sort(list.begin(), list.end(), [](const Entry& a, const Entry& b) {
        return a.neighbour != b.neighbour ? a.neighbour < b.neighbour : a.row < b.row;
      });
      neighbours.clear();
      weights.clear();
      for (const Entry& entry : list) {
        const bool again = !neighbours.empty() && neighbours.back() == entry.neighbour;
        const float before = again ? weights.back() : 0.0f,
                    after = add(before, weight_of(entry.row));
        if (lost(before, after)) return Lost{entry.row, before};
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
  std::optional<Lost> refused = fill(sources_, true, !directed_);
  edges_ = directed_ ? edges_ : edges_ / 2;
  if (directed_ && !refused) {
    const std::size_t edges = edges_;
    refused = fill(targets_, false, true);
    edges_ = edges;
  }
  for (std::size_t row = 0; row < src.size() && !refused; ++row) {
    if (src[row] != dst[row]) continue;
    const std::size_t node = std::size_t(src[row]);
    const float before = self_[node];
    self_[node] = add(before, weight_of(row));
    if (lost(before, self_[node])) refused = Lost{row, before};
    edges_ += !present_self_[node];
    present_self_[node] = 1;
  }
  return refused;
}

void Graph::erase(Node src, Node dst) {
  --edges_;
  if (src == dst) {
    present_self_[src] = 0;
    std::fill_n(self_.begin() + std::ptrdiff_t(src) * layers_, layers_, 0.0f);
    return;
  }
  sources_.erase(dst, sources_.find(dst, src));
  Adjacency& other = directed_ ? targets_ : sources_;
  other.erase(src, other.find(src, dst));
}

void Graph::set_layer(Node src, Node dst, int layer, float weight) {
  if (src == dst) {
    self_[std::size_t(src) * std::size_t(layers_) + std::size_t(layer)] = weight;
    return;
  }
  sources_.weights(dst, layer)[sources_.find(dst, src)] = weight;
  Adjacency& other = directed_ ? targets_ : sources_;
  other.weights(src, layer)[other.find(src, dst)] = weight;
}

void Graph::scale_layer(int layer, float factor) {
  for (std::size_t node = 0; node < nodes_; ++node) {
    for (float& weight : sources_.weights(Node(node), layer)) weight *= factor;
    if (directed_)
      for (float& weight : targets_.weights(Node(node), layer)) weight *= factor;
    self_[node * std::size_t(layers_) + std::size_t(layer)] *= factor;
  }
}

void Graph::tidy() {
  sources_.tidy();
  if (directed_) targets_.tidy();
}

void Adjacency::archive(Archive& archive, const std::string& name) {
  std::vector<std::uint32_t> sizes, neighbours;
  std::vector<float> weights;  // layer after layer
  if (!archive.reading()) {
    for (std::size_t node = 0; node < nodes(); ++node) {
      const std::span<const Node> list = this->neighbours(Node(node));
      sizes.push_back(std::uint32_t(list.size()));
      neighbours.insert(neighbours.end(), list.begin(), list.end());
    }
    for (int layer = 0; layer < layers_; ++layer)
      for (std::size_t node = 0; node < nodes(); ++node) {
        const std::span<const float> list = this->weights(Node(node), layer);
        weights.insert(weights.end(), list.begin(), list.end());
      }
  }
  archive.vector(name + ".sizes", sizes);
  archive.vector(name + ".neighbours", neighbours);
  archive.vector(name + ".weights", weights);
  if (!archive.reading()) return;
  std::uint64_t total = 0;
  for (const std::uint32_t size : sizes) total += size;
  if (sizes.size() != nodes() || total != neighbours.size() ||
      weights.size() != total * std::uint64_t(layers_))
    throw ArchiveError(name + ": the lists do not fit together");
  std::size_t e = 0;
  for (std::size_t node = 0; node < nodes(); ++node)
    for (const std::size_t end = e + sizes[node]; e < end; ++e) {
      if (neighbours[e] >= nodes()) throw ArchiveError(name + ": a neighbour is out of range");
      const std::uint32_t position = insert(Node(node), neighbours[e]);
      for (int layer = 0; layer < layers_; ++layer)
        this->weights(Node(node), layer)[position] = weights[total * std::size_t(layer) + e];
    }
}

void Graph::archive(Archive& archive, const std::string& name) {
  sources_.archive(archive, name + ".sources");
  if (directed_) targets_.archive(archive, name + ".targets");
  archive.block(name + ".self_edges", self_.data(), self_.size());
  if (!archive.reading()) return;
  edges_ = 0;
  for (std::size_t node = 0; node < nodes_; ++node) {
    present_self_[node] = self_edge(Node(node), 0) > 0;
    edges_ += 2 * present_self_[node] + sources_.size(Node(node)) * (directed_ ? 2 : 1);
  }
  edges_ /= 2;
}

}  // namespace tidegraph
