// Threads that wait for work by spinning a little and then sleep.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace paceline {

// A mutex that a fork leaves free in the child, whoever held it in the parent: its owner is not there
// to give it back.
class Mutex {
public:
    void lock();
    void unlock() { mutex_.unlock(); }

private:
    std::mutex mutex_;
    std::atomic<long> process_{0};
};

// `size` threads, the caller's among them. One job runs at a time; a second caller waits its turn.
class Pool {
public:
    explicit Pool(int size);  // size >= 1
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    // What a job knows of the team that runs it. All members run the same code.
    class Team {
    public:
        int size() const { return size_; }
        // Every member waits here until all have come.
        void barrier();
        // Runs work(i) for each i in 0..count-1, shared out one by one, then waits for all. All
        // members must call it, with the same count.
        template <class Work>
        void each(int count, Work&& work) {
            if (size_ == 1) {
                for (int i = 0; i < count; ++i) work(i);
                return;
            }
            // Two counters in turn: the one not in use is reset before the next call needs it.
            std::atomic<int>& next = pool_->next_[turn_ & 1].value;
            for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(i);
            ++turn_;
            barrier();
            if (index_ == 0) next.store(0, std::memory_order_relaxed);
        }
        int index() const { return index_; }

    private:
        friend class Pool;
        Team(Pool* pool, int index, int size) : pool_(pool), index_(index), size_(size) {}
        Pool* pool_;
        int index_, size_;
        unsigned turn_ = 0;
    };

    int size() const { return size_; }
    // Runs job(team) on every thread; returns when all have returned. The job must not throw.
    // Throws std::system_error where the system has no such number of threads.
    void run(const std::function<void(Team&)>& job);

private:
    struct alignas(64) Counter {
        std::atomic<int> value{0};
    };
    void start();
    void stop();
    void work(int index, unsigned seen);

    int size_;
    long process_ = 0;  // threads do not survive a fork: they are started again in the child
    Mutex running_;
    std::unique_ptr<std::vector<std::thread>> threads_;
    const std::function<void(Team&)>* job_ = nullptr;
    alignas(64) std::atomic<unsigned> generation_{0};
    alignas(64) std::atomic<unsigned> arrived_{0};
    alignas(64) std::atomic<unsigned> phase_{0};
    alignas(64) std::atomic<int> active_{0};
    Counter next_[2];
    bool closing_ = false;
};

}  // namespace paceline
