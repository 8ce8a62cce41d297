#include "features.hpp"

#include <vector>

#include "check.hpp"
#include "support.hpp"

using tidegraph::ColumnBlock;
using tidegraph::Distribution;
using tidegraph::Features;
using tidegraph::FeatureSource;
using tidegraph::Node;

namespace {

constexpr std::size_t kColumns = 21;
const std::vector<ColumnBlock> kBlocks = {{0, 16, 16}, {16, 5, 8}};

std::vector<double> thresholds() {
  std::vector<double> values;
  for (std::size_t c = 0; c < kColumns; ++c) values.push_back(0.01 + 0.003 * double(c));
  return values;
}

std::vector<double> random_row(support::Random& random) {
  std::vector<double> row(kColumns);
  for (double& value : row) value = random.between(-2, 2);
  return row;
}

double sketched(std::uint64_t node, std::uint64_t column) {
  return tidegraph::sketch(11, node, column, Distribution::gaussian);
}

Features<float> make(FeatureSource::Kind kind, const std::vector<double>& matrix) {
  Features<float> features({kind, 11, Distribution::gaussian}, kBlocks, thresholds());
  const std::size_t nodes = matrix.size() / kColumns;
  features.resize(nodes);
  if (kind == FeatureSource::Kind::borrowed) features.borrow(matrix.data(), nodes);
  if (kind == FeatureSource::Kind::kept)
    for (std::size_t node = 0; node < nodes; ++node)
      features.write(Node(node), matrix.data() + node * kColumns);
  return features;
}

void check_row(const Features<float>& features, std::vector<Features<float>::Reader>& readers,
               Node node, const std::vector<double>& expected) {
  const std::vector<double> units = thresholds();
  for (std::size_t b = 0; b < kBlocks.size(); ++b) {
    const auto [first, count, width] = kBlocks[b];
    std::vector<float> row(width, -1);
    features.read(b, node, row.data());
    const float* const read = readers[b].row(node);
    for (std::size_t i = 0; i < width; ++i) {
      const float value = i < count ? float(expected[first + i] / units[first + i]) : 0.0f;
      CHECK_EQUAL(row[i], value);
      CHECK_EQUAL(read[i], value);
    }
  }
}

std::vector<Features<float>::Reader> open(const Features<float>& features) {
  std::vector<Features<float>::Reader> readers(kBlocks.size());
  for (std::size_t b = 0; b < kBlocks.size(); ++b) readers[b].open(features, b);
  return readers;
}

}  // namespace

TEST(features_of_every_source_are_read_as_they_were_last_changed) {
  const std::size_t nodes = 1300;  // more than a reader caches
  for (const auto kind :
       {FeatureSource::Kind::kept, FeatureSource::Kind::sketched, FeatureSource::Kind::borrowed}) {
    std::vector<double> matrix;
    for (std::size_t node = 0; node < nodes; ++node)
      for (std::size_t c = 0; c < kColumns; ++c) matrix.push_back(sketched(node, c));
    std::vector<std::vector<double>> expected;
    for (std::size_t node = 0; node < nodes; ++node)
      expected.emplace_back(matrix.begin() + std::ptrdiff_t(node * kColumns),
                            matrix.begin() + std::ptrdiff_t((node + 1) * kColumns));
    Features<float> features = make(kind, matrix);
    auto readers = open(features);
    support::Random random(5);
    for (int step = 0; step < 400; ++step) {
      const Node node = Node(random.below(expected.size()));
      if (random.chance(0.3)) {
        expected[node] = random_row(random);
        features.write(node, expected[node].data());
      } else if (random.chance(0.2)) {
        expected[node].assign(kColumns, 0.0);
        features.clear(node);
      } else if (random.chance(0.1)) {
        const std::size_t fresh = expected.size();
        expected.emplace_back(kColumns, 0.0);
        if (kind == FeatureSource::Kind::sketched)
          for (std::size_t c = 0; c < kColumns; ++c) expected[fresh][c] = sketched(fresh, c);
        features.resize(fresh + 1);
        readers = open(features);
      }
      for (int look = 0; look < 5; ++look) {
        const Node other = look ? Node(random.below(expected.size())) : node;
        check_row(features, readers, other, expected[other]);
      }
    }
    // As they are saved, and read by a propagator made with the same settings.
    support::MemoryArchive archive;
    features.archive(archive);
    archive.begin_reading();
    Features<float> again({kind, 11, Distribution::gaussian}, kBlocks, thresholds());
    again.resize(expected.size());
    again.archive(archive);
    auto new_readers = open(again);
    for (std::size_t node = 0; node < expected.size(); ++node)
      check_row(again, new_readers, Node(node), expected[node]);
  }
}

TEST(a_saved_sketch_with_unknown_changed_nodes_is_rejected) {
  Features<float> features = make(FeatureSource::Kind::sketched, std::vector<double>(9 * kColumns));
  features.clear(8);
  support::MemoryArchive archive;
  features.archive(archive);
  archive.begin_reading();
  Features<float> smaller({FeatureSource::Kind::sketched, 11, Distribution::gaussian}, kBlocks,
                          thresholds());
  smaller.resize(8);
  bool rejected = false;
  try {
    smaller.archive(archive);
  } catch (const tidegraph::ArchiveError&) { rejected = true; }
  CHECK(rejected);
}
