#include "features.hpp"

#include <algorithm>
#include <bit>

namespace tidegraph {
namespace {

constexpr std::size_t kCachedRows = 512;  // serves four of five reads on a stream of edits
constexpr Node kNobody = ~Node(0);        // no node has this number

}  // namespace

template <class Real>
Features<Real>::Features(const FeatureSource& source, std::vector<ColumnBlock> blocks,
                         std::span<const double> thresholds)
    : source_(source),
      blocks_(std::move(blocks)),
      thresholds_(thresholds.begin(), thresholds.end()) {
  if (source_.kind == FeatureSource::Kind::kept) kept_.resize(blocks_.size());
}

template <class Real>
void Features<Real>::resize(std::size_t nodes) {
  nodes_ = nodes;
  for (std::size_t b = 0; b < kept_.size(); ++b) kept_[b].resize(nodes, blocks_[b].width);
}

template <class Real>
void Features<Real>::write(Node node, const double* row) {
  Real* const changed = kept_.empty() ? changed_row(node) : nullptr;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const auto [first, count, width] = blocks_[b];
    Real* const out = changed ? changed + first : kept_[b].data() + std::size_t(node) * width;
    for (std::size_t i = 0; i < count; ++i) out[i] = Real(row[first + i] / thresholds_[first + i]);
  }
  ++version_;
}

template <class Real>
void Features<Real>::clear(Node node) {
  for (std::size_t b = 0; b < kept_.size(); ++b)
    std::fill_n(kept_[b].data() + std::size_t(node) * blocks_[b].width, blocks_[b].width, Real(0));
  if (kept_.empty()) {
    const auto [found, fresh] = changed_.try_emplace(node, kZero);
    if (!fresh && found->second != kZero) vacant_.push_back(found->second);
    found->second = kZero;
  }
  ++version_;
}

// Returns where to write the row of a node over the source.
template <class Real>
Real* Features<Real>::changed_row(Node node) {
  const std::size_t padded = blocks_.back().first + blocks_.back().width;
  const auto [found, fresh] = changed_.try_emplace(node, kZero);
  if (found->second == kZero) {
    if (vacant_.empty()) {
      vacant_.push_back(changed_rows_.size() / padded);
      changed_rows_.resize(changed_rows_.size() + padded);
    }
    found->second = vacant_.back();
    vacant_.pop_back();
  }
  return changed_rows_.data() + found->second * padded;
}

template <class Real>
void Features<Real>::read(std::size_t block, Node node, Real* out) const {
  const auto [first, count, width] = blocks_[block];
  if (!kept_.empty()) {
    std::copy_n(kept_[block].data() + std::size_t(node) * width, width, out);
    return;
  }
  if (!changed_.empty()) {
    if (const auto found = changed_.find(node); found != changed_.end()) {
      const std::size_t padded = blocks_.back().first + blocks_.back().width;
      if (found->second == kZero)
        std::fill_n(out, width, Real(0));
      else
        std::copy_n(changed_rows_.data() + found->second * padded + first, width, out);
      return;
    }
  }
  const std::span<const double> units = std::span(thresholds_).subspan(first, count);
  if (source_.kind == FeatureSource::Kind::sketched) {
    sketch_row(source_.seed, node, source_.first_column + first, source_.distribution, units, out);
  } else if (node < lent_.count) {
    std::visit(
        [&](const auto* rows) {
          const auto* const row = rows + std::size_t(node) * thresholds_.size() + first;
          for (std::size_t i = 0; i < count; ++i) out[i] = Real(double(row[i]) / units[i]);
        },
        lent_.rows);
  } else {
    std::fill_n(out, count, Real(0));
  }
  std::fill(out + count, out + width, Real(0));
}

template <class Real>
std::size_t Features<Real>::bytes() const {
  std::size_t total = changed_rows_.size() * sizeof(Real) +
                      changed_.size() * sizeof(typename decltype(changed_)::value_type);
  for (const RowStore<Real>& rows : kept_) total += rows.bytes();
  return total;
}

template <class Real>
void Features<Real>::archive(Archive& archive) {
  if (archive.reading() && source_.kind == FeatureSource::Kind::borrowed) {
    source_.kind = FeatureSource::Kind::kept;
    kept_.resize(blocks_.size());
    resize(nodes_);
  }
  if (source_.kind == FeatureSource::Kind::sketched) {
    std::vector<Node> changed, zero;
    for (const auto& [node, place] : changed_) (place == kZero ? zero : changed).push_back(node);
    std::sort(changed.begin(), changed.end());
    std::sort(zero.begin(), zero.end());
    archive.vector("features.changed", changed);
    archive.vector("features.zero", zero);
    for (const std::vector<Node>* nodes : {&changed, &zero})
      for (const Node node : *nodes)
        if (node >= nodes_) throw ArchiveError("features: a changed node is unknown");
    if (archive.reading())
      for (const Node node : zero) clear(node);
    const std::size_t padded = blocks_.back().first + blocks_.back().width;
    std::vector<Real> rows(changed.size() * padded);
    if (!archive.reading())
      for (std::size_t i = 0; i < changed.size(); ++i)
        std::copy_n(changed_row(changed[i]), padded, rows.data() + i * padded);
    archive.block("features.rows", rows.data(), rows.size());
    if (archive.reading())
      for (std::size_t i = 0; i < changed.size(); ++i)
        std::copy_n(rows.data() + i * padded, padded, changed_row(changed[i]));
    return;
  }
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const std::string name = "block" + std::to_string(b) + ".features";
    const std::size_t width = blocks_[b].width, size = nodes_ * width;
    if (!kept_.empty()) {
      archive.lasting(name, kept_[b].data(), size);
      continue;
    }
    std::vector<Real> rows(size);
    for (std::size_t node = 0; node < nodes_; ++node)
      read(b, Node(node), rows.data() + node * width);
    archive.block(name, rows.data(), size);
  }
}

template <class Real>
void Features<Real>::Reader::open(const Features& features, std::size_t block) {
  features_ = &features;
  block_ = block;
  version_ = 0;
  if (features.kept(block)) return;
  nodes_.assign(std::min(kCachedRows, std::bit_ceil(features.nodes_)), kNobody);
  recent_.resize(nodes_.size(), features.blocks_[block].width);
}

template <class Real>
const Real* Features<Real>::Reader::row(Node node) {
  const std::size_t width = features_->blocks_[block_].width;
  if (const Real* const kept = features_->kept(block_)) return kept + std::size_t(node) * width;
  if (version_ != features_->version_) {
    std::fill(nodes_.begin(), nodes_.end(), kNobody);
    version_ = features_->version_;
  }
  const std::size_t slot = node & (nodes_.size() - 1);
  Real* const row = recent_.data() + slot * width;
  if (nodes_[slot] != node) {
    features_->read(block_, node, row);
    nodes_[slot] = node;
  }
  return row;
}

template class Features<float>;
template class Features<double>;

}  // namespace tidegraph
