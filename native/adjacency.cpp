#include "adjacency.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "list_index.hpp"
#include "weights.hpp"

namespace tidegraph {
namespace {

std::int32_t fraction_of(double weight) {
  const float near = float(weight);
  return double(near) == weight
             ? 0
             : std::int32_t(std::nearbyint((weight - double(near)) / fraction_unit(near)));
}

constexpr std::uint32_t kLargestCount = 1 << 24;  // float32 holds all counts up to this

// The capacities a list may have. Growing by a quarter, and long lists by an eighth, keeps the
// average slack near a tenth.
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

}  // namespace

// Calls work with the index of a list in the width it has; does nothing if the list is short enough
// to scan.
template <class Work>
void Adjacency::with_index(const List& list, Work work) const {
  if (list.capacity <= kScannedCapacity) return;
  std::uint32_t* const memory = list.block + index_place(list.capacity);
  if (index_is_narrow(list.capacity))
    work(ListIndex<std::uint16_t>(memory, list.block, list.capacity));
  else
    work(ListIndex<std::uint32_t>(memory, list.block, list.capacity));
}

void Adjacency::fill_index(const List& list) const {
  with_index(list, [&](auto index) {
    for (std::uint32_t position = 0; position < list.size; ++position) index.insert(position);
  });
}

template <class Self, class Visit>
void Adjacency::for_own_lists(Self& self, Visit visit) {
  for (std::size_t node = 0; node < self.lists_.size(); ++node)
    visit(Node(node), self.lists_[node]);
  for (std::size_t page = 0; page < self.pages_.size(); ++page) {
    if (!self.pages_[page]) continue;
    for (std::size_t i = 0; i < kPageLists; ++i)
      if (self.pages_[page][i].size != kUntouched)
        visit(Node(page * kPageLists + i), self.pages_[page][i]);
  }
}

// Delegates, so that the destructor frees what was copied if memory runs out.
Adjacency::Adjacency(const Adjacency& other) : Adjacency(other.layers_) {
  fine_ = other.fine_;
  copy_lists(other);
}

Adjacency::~Adjacency() { free_own_lists(); }

// Copies everything but `fine_` into this empty object, with fractions of zero if only this one has
// room for them.
void Adjacency::copy_lists(const Adjacency& other) {
  base_ = other.base_;
  merged_ = other.merged_;
  resize(other.nodes_);
  for_own_lists(other, [&](Node node, const List& from) {
    List& to = compact() ? place(node) : lists_[node];
    to = {};
    if (!from.block) return;
    move_into(arena_, to, class_for(from.capacity));
    to.size = from.size;
    std::copy_n(from.block, from.size, to.block);
    for (int layer = 0; layer < layers_; ++layer) {
      std::copy_n(weights_of(from, layer), from.size, weights_of(to, layer));
      if (other.fine_)
        std::copy_n(other.fractions_of(from, layer), from.size, fractions_of(to, layer));
      else if (fine_)
        std::fill_n(fractions_of(to, layer), from.size, 0);
    }
    fill_index(to);
  });
}

// Makes room for fractions in all lists.
void Adjacency::begin_fractions() {
  Adjacency wider(layers_);
  wider.fine_ = true;
  wider.copy_lists(*this);
  std::swap(fine_, wider.fine_);
  std::swap(lists_, wider.lists_);
  std::swap(arena_, wider.arena_);
  std::swap(base_, wider.base_);
  std::swap(pages_, wider.pages_);
  std::swap(page_memory_, wider.page_memory_);
}

void Adjacency::free_own_lists() {
  for_own_lists(*this, [&](Node, const List& list) {
    if (list.block && words(list.capacity) >= Arena::kOwnPageWords) delete[] list.block;
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
  free_own_lists();
  base_.nodes = nodes_;
  base_.offsets = offsets;
  base_.neighbours = neighbours;
  base_.weights = weights;
  base_.fractions = fractions;
  merged_ = std::move(merged);
}

void Adjacency::attach_base(const CompactLists& base) {
  base_ = base;
  fine_ = base.fractions != nullptr;
  std::vector<List>().swap(lists_);  // frees its memory
  resize(std::max(nodes_, base.nodes));
}

void Adjacency::resize(std::size_t nodes) {
  nodes_ = nodes;
  if (!compact()) return lists_.resize(nodes);
  pages_.resize((nodes + kPageLists - 1) / kPageLists, nullptr);
  base_.pages = pages_.data();
}

Entries Adjacency::base_entries(Node node) const {
  if (node >= base_.nodes) return {};
  const std::uint64_t first = base_.offsets[node], last = base_.offsets[node + 1];
  return {base_.neighbours + first, base_.weights ? base_.weights + first : nullptr,
          base_.fractions ? base_.fractions + first : nullptr, std::uint32_t(last - first)};
}

List& Adjacency::place(Node node) {
  List*& page = pages_[node / kPageLists];
  if (!page) {
    page_memory_.push_back(std::make_unique<List[]>(kPageLists));
    page = page_memory_.back().get();
    for (std::size_t i = 0; i < kPageLists; ++i) page[i].size = kUntouched;
  }
  return page[node % kPageLists];
}

List& Adjacency::own(Node node) {
  if (!compact()) return lists_[node];
  if (List& list = place(node); list.size != kUntouched) return list;
  const Entries old = base_entries(node);
  if (old.size == 0) return place(node) = {};
  // A neighbour that the base repeats becomes one entry with the sum of its weights.
  std::uint32_t distinct = 1, repeated = 1, most = 1;
  for (std::uint32_t e = 1; e < old.size; ++e) {
    const bool again = old.neighbours[e] == old.neighbours[e - 1];
    distinct += !again;
    repeated = again ? repeated + 1 : 1;
    most = std::max(most, repeated);
  }
  if (!fine_ && most > kLargestCount) begin_fractions();
  List list;
  move_into(arena_, list, class_for(distinct));
  for (std::uint32_t e = 0; e < old.size;) {
    const Node neighbour = old.neighbours[e];
    double weight = 0;
    for (; e < old.size && old.neighbours[e] == neighbour; ++e) weight += weight_at(old, e);
    list.block[list.size++] = neighbour;
    put_weight(list, list.size - 1, 0, weight);
  }
  fill_index(list);
  return place(node) = list;
}

std::size_t Adjacency::words(std::uint32_t capacity) const {
  const std::size_t slots = index_slots(capacity);
  return index_place(capacity) + (index_is_narrow(capacity) ? (slots + 1) / 2 : slots);
}

// Gives a list a new block of the given size class.
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
    for (int layer = 0; layer < layers_ && fine_ && list.size; ++layer)
      std::copy_n(fractions_of(list, layer), list.size, fractions_of(moved, layer));
  with_index(moved, [](auto index) { index.clear(); });
  fill_index(moved);
  list = moved;
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
  const List* const found = own_list(node);
  if (!found) {
    const Entries list = base_entries(node);
    const Node* const last = list.neighbours + list.size;
    const Node* const at = merged_.empty() ? std::lower_bound(list.neighbours, last, neighbour)
                                           : std::find(list.neighbours, last, neighbour);
    return at != last && *at == neighbour ? std::uint32_t(at - list.neighbours) : kAbsent;
  }
  const List& list = *found;
  std::uint32_t position = kAbsent;
  if (list.capacity <= kScannedCapacity) {
    for (std::uint32_t e = 0; e < list.size; ++e)
      if (list.block[e] == neighbour) return e;
  } else {
    with_index(list, [&](auto index) { position = index.find(neighbour); });
  }
  return position;
}

double Adjacency::weight(Node node, std::uint32_t position, int layer) const {
  const Entries list = entries(node, layer);
  double sum = 0;  // the base may repeat a neighbour
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
  fill_index(list);
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
  if (arena_.idle_words() <= arena_.live_words() / 4 + Arena::kPageWords / 4) return;
  Arena fresh;
  std::size_t own = 0;
  for_own_lists(*this, [&](Node, List& list) {
    if (!list.block) return;
    if (words(list.capacity) >= Arena::kOwnPageWords)  // an allocation of its own, never idle
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

void Adjacency::archive(Archive& archive, const std::string& name) {
  // Over a base, only the lists that have changed since it was attached; merging leaves no trace.
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
    throw ArchiveError(name + ": the lists do not match each other");
  std::size_t e = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t node = compact() ? own[i] : i;
    if (node >= nodes()) throw ArchiveError(name + ": a list belongs to an unknown node");
    if (compact()) place(Node(node)) = {};  // replaces the base's
    for (const std::size_t end = e + sizes[i]; e < end; ++e) {
      if (neighbours[e] >= nodes()) throw ArchiveError(name + ": a neighbour is out of range");
      const std::uint32_t position = insert(Node(node), neighbours[e]);
      for (int layer = 0; layer < layers_; ++layer)
        set_weight(Node(node), position, layer, weights[total * std::size_t(layer) + e]);
    }
  }
}

}  // namespace tidegraph
