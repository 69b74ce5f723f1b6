#include "pool.h"

#include <new>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace paceline {
namespace {

constexpr int SPINS = 2000;  // some 50 us: longer than what separates two passes of a small model

void pause() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins until done(); where that takes long, another program has our core's neighbour, and then
// this core is better given to whoever wants it.
template <class Done>
void spin(Done&& done) {
    for (int i = 0; !done(); ++i) {
        if (i < SPINS)
            pause();
        else
            std::this_thread::yield();
    }
}

long this_process() {
#if defined(__unix__) || defined(__APPLE__)
    return getpid();
#else
    return 1;
#endif
}

}  // namespace

void Mutex::lock() {
    const long here = this_process();
    if (long before = process_.load(); before != here) {
        if (before != 0 && process_.compare_exchange_strong(before, here)) new (&mutex_) std::mutex;
        process_ = here;
    }
    mutex_.lock();
}

Pool::Pool(int size) : size_(size) {}

Pool::~Pool() {
    if (process_ == this_process())
        stop();
    else
        (void)threads_.release();  // after a fork these are another process's threads
}

void Pool::stop() {
    if (!threads_) return;
    closing_ = true;
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    for (auto& thread : *threads_) thread.join();
    threads_.reset();
    closing_ = false;
}

void Pool::start() {
    (void)threads_.release();
    process_ = this_process();
    arrived_ = 0;
    phase_ = 0;
    for (auto& counter : next_) counter.value = 0;
    threads_ = std::make_unique<std::vector<std::thread>>();
    const unsigned seen = generation_.load();
    try {
        for (int i = 1; i < size_; ++i) threads_->emplace_back([this, i, seen] { work(i, seen); });
    } catch (...) {
        stop();
        throw;
    }
}

void Pool::run(const std::function<void(Team&)>& job) {
    std::lock_guard lock(running_);
    if (!threads_ || process_ != this_process()) start();
    job_ = &job;
    active_.store(size_ - 1, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    Team team(this, 0, size_);
    job(team);
    spin([&] { return active_.load(std::memory_order_acquire) == 0; });
}

void Pool::work(int index, unsigned seen) {
    for (;;) {
        for (int i = 0; i < SPINS && generation_.load(std::memory_order_acquire) == seen; ++i) pause();
        generation_.wait(seen, std::memory_order_acquire);
        seen = generation_.load(std::memory_order_acquire);
        if (closing_) return;
        Team team(this, index, size_);
        (*job_)(team);
        active_.fetch_sub(1, std::memory_order_release);
    }
}

void Pool::Team::barrier() {
    if (size_ == 1) return;
    unsigned phase = pool_->phase_.load(std::memory_order_relaxed);
    if (pool_->arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == unsigned(size_)) {
        pool_->arrived_.store(0, std::memory_order_relaxed);
        pool_->phase_.fetch_add(1, std::memory_order_release);
    } else {
        spin([&] { return pool_->phase_.load(std::memory_order_acquire) != phase; });
    }
}

}  // namespace paceline
