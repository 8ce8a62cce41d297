// Saved state as a dictionary of NumPy arrays.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "archive.hpp"
#include "arrays.hpp"

namespace tidegraph {

using Arrays = nb::typed<nb::dict, nb::str, nb::any>;

// Collects arrays in a dictionary. Lasting memory becomes a view that keeps `owner` alive.
class StateWriter final : public Archive {
 public:
  explicit StateWriter(nb::handle owner) : owner_(owner) {}
  bool reading() const override { return false; }
  Arrays arrays() const { return arrays_; }

 protected:
  std::size_t count(const std::string&) const override { return 0; }
  void move(const std::string& name, Kind kind, void* data, std::size_t size,
            bool lasting) override {
    switch (kind) {
      case Kind::u8:
        return put<std::uint8_t>(name, data, size, lasting);
      case Kind::u32:
        return put<std::uint32_t>(name, data, size, lasting);
      case Kind::u64:
        return put<std::uint64_t>(name, data, size, lasting);
      case Kind::i64:
        return put<std::int64_t>(name, data, size, lasting);
      case Kind::f32:
        return put<float>(name, data, size, lasting);
      case Kind::f64:
        return put<double>(name, data, size, lasting);
    }
  }

 private:
  template <class T>
  void put(const std::string& name, void* data, std::size_t size, bool lasting) {
    T* const values = static_cast<T*>(data);
    if (lasting)
      arrays_[name.c_str()] = Array<T>(values, {size}, owner_);
    else
      arrays_[name.c_str()] = own(std::vector<T>(values, values + size));
  }
  nb::handle owner_;
  Arrays arrays_;
};

class StateReader final : public Archive {
 public:
  explicit StateReader(Arrays arrays) : arrays_(std::move(arrays)) {}
  bool reading() const override { return true; }

 protected:
  nb::ndarray<nb::ro> find(const std::string& name) const {
    if (!arrays_.contains(name.c_str())) throw ArchiveError("the array " + name + " is missing");
    return nb::cast<nb::ndarray<nb::ro>>(arrays_[name.c_str()]);
  }
  std::size_t count(const std::string& name) const override { return find(name).size(); }
  void move(const std::string& name, Kind kind, void* data, std::size_t size, bool) override {
    const nb::ndarray<nb::ro> array = find(name);
    const auto expect = [&](nb::dlpack::dtype type) {
      if (array.dtype() != type || array.size() != size)
        throw ArchiveError("the array " + name +
                           " has another type or size than the settings need");
      if (size) std::memcpy(data, array.data(), array.nbytes());
    };
    switch (kind) {
      case Kind::u8:
        return expect(nb::dtype<std::uint8_t>());
      case Kind::u32:
        return expect(nb::dtype<std::uint32_t>());
      case Kind::u64:
        return expect(nb::dtype<std::uint64_t>());
      case Kind::i64:
        return expect(nb::dtype<std::int64_t>());
      case Kind::f32:
        return expect(nb::dtype<float>());
      case Kind::f64:
        return expect(nb::dtype<double>());
    }
  }

 private:
  Arrays arrays_;
};

}  // namespace tidegraph
