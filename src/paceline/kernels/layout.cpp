#include "layout.h"

#include <cstring>
#include <new>
#include <stdexcept>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#define PACELINE_MMAP 1
#endif

namespace paceline {
namespace {

constexpr std::size_t PAGE = std::size_t(2) << 20;  // a large page on x86-64
constexpr std::align_val_t ALIGNED{64};

}  // namespace

Buffer::Buffer(std::size_t bytes) : size_(bytes) {
#ifdef PACELINE_MMAP
    if (bytes >= PAGE) {
        // Weights are streamed once a pass: with small pages, looking up addresses costs a tenth.
        std::size_t size = (bytes + PAGE - 1) / PAGE * PAGE;
        void* start = mmap(nullptr, size + PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED) throw std::bad_alloc();
        auto* first = static_cast<std::uint8_t*>(start);
        std::size_t before = (PAGE - reinterpret_cast<std::uintptr_t>(first) % PAGE) % PAGE;
        if (before) munmap(first, before);
        if (before != PAGE) munmap(first + before + size, PAGE - before);
#ifdef MADV_HUGEPAGE
        madvise(first + before, size, MADV_HUGEPAGE);  // a wish: nothing depends on it
#endif
        data_ = {first + before, [size](std::uint8_t* data) { munmap(data, size); }};
        return;
    }
#endif
    auto* data = static_cast<std::uint8_t*>(::operator new(bytes ? bytes : 1, ALIGNED));
    std::memset(data, 0, bytes);
    data_ = {data, [](std::uint8_t* data) { ::operator delete(data, ALIGNED); }};
}

Matrix::Matrix(Kind kind, int rows, int cols, Buffer data)
    : kind(kind),
      rows(rows),
      cols(cols),
      units((cols + kind.span() - 1) / kind.span()),
      data(std::move(data)) {
    if (rows < 1 || cols < 1) throw std::invalid_argument("a matrix has at least one row and column");
    const std::size_t bytes = blocks() * block_bytes();
    if (!this->data.data()) this->data = Buffer(bytes);
    if (this->data.size() != bytes)
        throw std::invalid_argument("a matrix of this kind and shape has " + std::to_string(bytes) +
                                    " bytes, not " + std::to_string(this->data.size()));
}

Matrix::Matrix(Kind kind, int rows, int cols) : Matrix(kind, rows, cols, Buffer()) {}

}  // namespace paceline
