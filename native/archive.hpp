// How state leaves and enters the core: as named arrays of plain numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace tidegraph {

// An array is missing, or has another type or size than the state needs.
struct ArchiveError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Archive {
 public:
  enum class Kind : std::uint8_t { u8, u32, u64, i64, f32, f64 };

  virtual ~Archive() = default;
  virtual bool reading() const = 0;

  // Writes or reads a vector; reading sets its size.
  template <class T>
  void vector(const std::string& name, std::vector<T>& values) {
    if (reading()) values.resize(count(name));
    block(name, values.data(), values.size());
  }
  // Writes or reads memory of a known size.
  template <class T>
  void block(const std::string& name, T* values, std::size_t size) {
    move(name, kind<T>(), values, size, false);
  }
  // The same for memory that outlives the archive, so that writing need not copy it.
  template <class T>
  void lasting(const std::string& name, T* values, std::size_t size) {
    move(name, kind<T>(), values, size, true);
  }
  template <class T>
  void scalar(const std::string& name, T& value) {
    block(name, &value, 1);
  }

 protected:
  virtual std::size_t count(const std::string& name) const = 0;
  virtual void move(const std::string& name, Kind kind, void* data, std::size_t size,
                    bool lasting) = 0;

 private:
  template <class T>
  static constexpr Kind kind() {
    if constexpr (std::is_same_v<T, std::uint8_t>)
      return Kind::u8;
    else if constexpr (std::is_same_v<T, std::uint32_t>)
      return Kind::u32;
    else if constexpr (std::is_same_v<T, std::uint64_t>)
      return Kind::u64;
    else if constexpr (std::is_same_v<T, std::int64_t>)
      return Kind::i64;
    else if constexpr (std::is_same_v<T, float>)
      return Kind::f32;
    else
      return Kind::f64;
  }
};

}  // namespace tidegraph
