#include "plait/comm/local/run_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

namespace plait::comm {

namespace {

constexpr int kOrphanMs = 100;    // what a rank has to stop in after rank 0 has died
constexpr int kTickMs = 25;       // looks for a failure that no process has ended over
constexpr int kLastWordMs = 500;  // what orphans have to end in
constexpr char kReturned = 'r', kThrew = 'e';

// Where ranks say that rank 0 is lost; set once, by supervise, in the process that it forks.
int last_words = -1;

int pidfd_of(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

void write_all(int fd, const std::string& s) {
  for (size_t at = 0; at < s.size();) {
    const ssize_t n = write(fd, s.data() + at, s.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads: the reader is dead
    at += static_cast<size_t>(n);
  }
}

/// Reads what there is; false at the end of the pipe.
bool drain(int fd, std::string& to) {
  char buffer[4096];
  const ssize_t n = read(fd, buffer, sizeof buffer);
  if (n > 0) to.append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

std::string how(const siginfo_t& i) {
  if (i.si_code == CLD_EXITED) return fmt::format("ended with exit code {}", i.si_status);
  return fmt::format("was killed by signal {} ({})", i.si_status, strsignal(i.si_status));
}

// --- in a forked rank ---

[[noreturn]] void orphaned(LocalWorld& world) {
  // One write, so that what several ranks say does not mix.
  if (last_words >= 0) write_all(last_words, world.title(0) + '\n' + world.doing(0) + '\n');
  world.poison(0, "its process has ended " + world.doing(0));
  std::this_thread::sleep_for(std::chrono::milliseconds(kOrphanMs));
  _exit(static_cast<int>(Code::rank_lost));
}

[[noreturn]] void be_rank(LocalWorld& world, i64 rank, const std::function<std::string(i64)>& f, int out,
                          pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGCONT);  // a stopped rank goes on, sees that it is alone, and ends
  std::string said;
  int code = 0;
  try {
    const int fd = pidfd_of(parent);
    if (fd < 0 || getppid() != parent) orphaned(world);
    std::thread([&world, fd] {
      pollfd p{fd, POLLIN, 0};
      while (poll(&p, 1, -1) <= 0) {}
      orphaned(world);
    }).detach();
    said = kReturned + f(rank);
    world.leave(rank);
  } catch (...) {
    const auto error = std::current_exception();
    const std::string text = text_of(error);
    world.poison(rank, text);
    code = static_cast<int>(code_of(error));
    said = std::string{kThrew, static_cast<char>(code)} + text;
  }
  write_all(out, said);
  _exit(code);
}

// --- in rank 0 ---

struct Child {
  i64 rank = 0;
  pid_t pid = -1;
  int pidfd = -1, pipe = -1;
  bool ended = false, lost = false;
  std::string said;
};

/// The forked ranks, as rank 0 sees them.
class Monitor {
 public:
  Monitor(LocalWorld& world, const RunOptions& options) : world_(world), options_(options) {}
  ~Monitor() {
    for (auto& c : children_) {
      if (!c.ended) {
        kill(c.pid, SIGKILL);
        waitpid(c.pid, nullptr, 0);
      }
      close_fds(c);
    }
    if (wake_ >= 0) close(wake_);
  }
  Monitor(const Monitor&) = delete;

  void start(const std::function<std::string(i64)>& f) {
    wake_ = eventfd(0, EFD_CLOEXEC);
    if (wake_ < 0) cannot("no eventfd");
    children_.reserve(static_cast<size_t>(world_.size()));
    const pid_t self = getpid();
    for (i64 r = 1; r < world_.size(); r++) {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) != 0) cannot("no pipe");
      const pid_t pid = fork();
      if (pid == 0) {
        for (auto& c : children_) close_fds(c);
        close(ends[0]);
        be_rank(world_, r, f, ends[1], self);
      }
      close(ends[1]);
      if (pid < 0) {
        close(ends[0]);
        cannot("no process");
      }
      children_.push_back({.rank = r, .pid = pid, .pidfd = pidfd_of(pid), .pipe = ends[0]});
      if (children_.back().pidfd < 0) cannot("no pidfd");
    }
  }

  /// Until all have ended; in a thread of its own.
  void watch() {
    i64 failed_at = 0;
    while (std::any_of(children_.begin(), children_.end(), [](auto& c) { return !c.ended; })) {
      std::vector<pollfd> fds;
      std::vector<Child*> whose;
      for (auto& c : children_) {
        if (c.ended) continue;
        fds.push_back({c.pidfd, POLLIN, 0});
        fds.push_back({c.pipe, POLLIN, 0});  // -1 is skipped
        whose.push_back(&c);
      }
      poll(fds.data(), fds.size(), kTickMs);
      for (size_t i = 0; i < whose.size(); i++) {
        Child& c = *whose[i];
        if (fds[2 * i + 1].revents != 0 && !drain(c.pipe, c.said)) {
          close(c.pipe);
          c.pipe = -1;
        }
        if (fds[2 * i].revents != 0) reap(c);
      }
      if (!world_.failure()) continue;
      if (failed_at == 0) failed_at = now_ns();
      if (static_cast<double>(now_ns() - failed_at) * 1e-9 > options_.grace_s)
        for (auto& c : children_)
          if (!c.ended) kill(c.pid, SIGKILL);
    }
    if (!world_.failure() || !options_.stuck) return;
    if (failed_at == 0) failed_at = now_ns();
    const auto left = static_cast<i64>(options_.grace_s * 1e9) - (now_ns() - failed_at);
    pollfd p{wake_, POLLIN, 0};
    if (poll(&p, 1, static_cast<int>(std::max<i64>(0, left / 1000000))) == 0) options_.stuck(error({}));
  }

  /// Rank 0 has returned.
  void returned() { write_all(wake_, std::string(8, '\1')); }

  /// What the run failed of. `own`: what rank 0 threw, or null
  Error error(const std::exception_ptr& own) const {
    const auto failure = *world_.failure();
    const i64 r = failure.rank;
    const Child* c = r > 0 ? &children_[static_cast<size_t>(r - 1)] : nullptr;
    if (c != nullptr && c->lost) return Error(Code::rank_lost, fmt::format("{} {}", world_.title(r), failure.text));
    Code code = Code::rank_lost;
    std::string text = failure.text;
    if (c != nullptr && c->said.size() >= 2 && c->said[0] == kThrew) {
      code = static_cast<Code>(c->said[1]);
      text = c->said.substr(2);
    } else if (r == 0 && own) {
      code = code_of(own);
      text = text_of(own);
    }
    return Error(code, fmt::format("{}: {}", world_.place(r), text));
  }

  std::string result(i64 rank) const { return children_[static_cast<size_t>(rank - 1)].said.substr(1); }

 private:
  [[noreturn]] void cannot(const char* what) {
    fail(Code::does_not_fit, "[run_processes] {} for rank {} of {}: {}", what, children_.size() + 1, world_.size(),
         std::strerror(errno));
  }
  static void close_fds(Child& c) {
    if (c.pipe >= 0) close(c.pipe);
    if (c.pidfd >= 0) close(c.pidfd);
    c.pipe = c.pidfd = -1;
  }
  void reap(Child& c) {
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(c.pid), &info, WEXITED) != 0 && errno == EINTR) {}
    while (c.pipe >= 0 && drain(c.pipe, c.said)) {}
    c.ended = true;
    const bool spoke = !c.said.empty() && (c.said[0] == kThrew || (info.si_code == CLD_EXITED && info.si_status == 0));
    if (spoke) return;
    c.lost = true;
    world_.poison(c.rank, how(info) + ' ' + world_.doing(c.rank));
  }

  LocalWorld& world_;
  const RunOptions& options_;
  std::vector<Child> children_;
  int wake_ = -1;
};

}  // namespace

std::vector<std::string> run_processes(LocalWorld& world, const std::function<std::string(i64)>& f,
                                       const RunOptions& options) {
  world.start();
  Monitor monitor(world, options);
  monitor.start(f);
  std::thread watcher([&] { monitor.watch(); });
  std::vector<std::string> results(static_cast<size_t>(world.size()));
  std::exception_ptr error;
  try {
    results[0] = f(0);
    world.leave(0);
  } catch (...) {
    error = std::current_exception();
    world.poison(0, text_of(error));
  }
  monitor.returned();
  watcher.join();
  if (world.failure()) throw monitor.error(error);
  for (i64 r = 1; r < world.size(); r++) results[static_cast<size_t>(r)] = monitor.result(r);
  return results;
}

Supervised supervise(const std::function<int()>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(Code::does_not_fit, "[supervise] no pipe: {}", std::strerror(errno));
  sigset_t interrupts, before;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupts, &before);
  std::fflush(nullptr);
  const pid_t self = getpid(), pid = fork();
  if (pid == 0) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) _exit(static_cast<int>(Code::rank_lost));
    close(ends[0]);
    last_words = ends[1];
    const int code = command();
    std::fflush(nullptr);
    _exit(code);
  }
  close(ends[1]);
  const int pidfd = pid < 0 ? -1 : pidfd_of(pid), signals = signalfd(-1, &interrupts, SFD_CLOEXEC);
  if (pidfd < 0 || signals < 0) fail(Code::does_not_fit, "[supervise] no process: {}", std::strerror(errno));
  std::string words;
  for (pollfd fds[2] = {{pidfd, POLLIN, 0}, {signals, POLLIN, 0}}; (fds[0].revents & POLLIN) == 0;) {
    poll(fds, 2, -1);
    signalfd_siginfo s;
    // From the terminal the command has got it too.
    if ((fds[1].revents & POLLIN) != 0 && read(signals, &s, sizeof s) == sizeof s && s.ssi_code != SI_KERNEL)
      kill(pid, SIGINT);
  }
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0 && errno == EINTR) {}
  // The other ranks hold the pipe's other end until they have ended.
  pollfd p{ends[0], POLLIN, 0};
  while (poll(&p, 1, kLastWordMs) > 0 && drain(ends[0], words)) {}
  close(ends[0]);
  close(pidfd);
  close(signals);
  const bool killed = info.si_code != CLD_EXITED;
  if (killed && (info.si_status == SIGINT || info.si_status == SIGPIPE)) {
    signal(info.si_status, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    raise(info.si_status);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!killed && words.empty()) return {info.si_status, ""};
  const size_t first = words.find('\n');
  if (words.empty() || first == std::string::npos) return {static_cast<int>(Code::rank_lost), "rank 0 " + how(info)};
  const std::string doing = words.substr(first + 1, words.find('\n', first + 1) - first - 1);
  return {static_cast<int>(Code::rank_lost), fmt::format("{} {} {}", words.substr(0, first), how(info), doing)};
}

}  // namespace plait::comm
