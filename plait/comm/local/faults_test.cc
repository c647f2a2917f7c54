// What goes wrong: a rank throws, returns, never comes, calls something else; and that it is said at once and who.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "plait/comm/local/run_ranks.h"

namespace plait::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void nap(double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }

struct Outcome {
  std::string text;
  Code code = Code::ok;
  double seconds = 0;
};

// Runs f on the ranks of one group and returns how it failed.
Outcome outcome(LocalWorld& world, i64 group, const std::function<void(Communicator&)>& f, RunOptions run = {}) {
  Outcome o;
  double t = now_s();
  try {
    run_ranks(
        world, [&](i64 r) { f(*world.join(group, r)); }, run);
  } catch (const Error& e) {
    o.text = e.what();
    o.code = e.code();
  }
  o.seconds = now_s() - t;
  return o;
}

Outcome of_three(const std::function<void(Communicator&)>& f, double deadline_s = 20) {
  LocalWorld world(3, {.deadline_s = deadline_s});
  return outcome(world, world.add_group({0, 1, 2}), f);
}

void reduce(Communicator& c, i64 count, const char* what) {
  std::vector<i64> x(static_cast<size_t>(count), c.rank());
  c.wait(c.start_all_reduce(x.data(), x.data(), count, DType::i64, Join::sum, what));
}

TEST(Faults, ARankThrows) {
  for (double asleep : {0.0, 0.1}) {  // the others spin, or sleep
    double thrown = 0;
    auto o = of_three([&](Communicator& c) {
      reduce(c, 5, "first");
      if (c.rank() == 1) {
        nap(asleep);
        thrown = now_s();
        fail(Code::bad_file, "the disk is gone");
      }
      reduce(c, 5, "second");
    });
    double stopped = now_s() - thrown;
    EXPECT_EQ(o.code, Code::bad_file);
    EXPECT_EQ(o.text, "rank 1: the disk is gone");
    EXPECT_LT(stopped, 0.2);
  }
}

TEST(Faults, OthersAreToldTheCause) {
  std::vector<std::string> texts(3);
  of_three([&](Communicator& c) {
    if (c.rank() == 2) throw std::runtime_error("no more memory");
    for (int again = 0; again < 2; again++)  // every later call throws too
      try {
        reduce(c, 5, "attn.o");
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Code::rank_lost);
        texts[static_cast<size_t>(c.rank())] += e.what();
      }
    EXPECT_THROW(c.barrier("after"), Error);
    EXPECT_THROW(c.start_send(nullptr, 0, 0, "after"), Error);
  });
  for (size_t r : {0, 1}) {
    EXPECT_THAT(texts[r], AllOf(HasSubstr("all_reduce 'attn.o' of 5 i64 (sum)"), HasSubstr("group {0,1,2}"),
                                HasSubstr("rank 2 was lost: no more memory")));
  }
}

TEST(Faults, ARankNeverComes) {
  auto o = of_three(
      [](Communicator& c) {
        reduce(c, 5, "first");
        if (c.rank() == 2) {
          nap(0.6);
          return;
        }
        reduce(c, 576, c.rank() == 0 ? "mlp.down" : "mlp.down");
      },
      0.3);
  EXPECT_EQ(o.code, Code::rank_lost);
  EXPECT_THAT(o.text, AllOf(HasSubstr("[all_reduce 'mlp.down' of 576 i64 (sum), operation 2 of group {0,1,2}]"),
                            HasSubstr("rank 2 did not come"), HasSubstr("waits in all_reduce 'mlp.down'"),
                            HasSubstr("rank 2 has finished all_reduce 'first' of 5 i64 (sum), operation 1")));
  EXPECT_LT(o.seconds, 0.9);
}

TEST(Faults, ARankReturnsEarly) {
  auto o = of_three([](Communicator& c) {
    reduce(c, 5, "first");
    if (c.rank() != 0) reduce(c, 5, "second");
  });
  EXPECT_EQ(o.code, Code::rank_lost);
  EXPECT_THAT(o.text, AllOf(HasSubstr("rank 0, which has returned"), HasSubstr("'second'")));
  EXPECT_LT(o.seconds, 0.5);
}

TEST(Faults, DifferentCallsAreToldAtOnce) {
  auto o = of_three([](Communicator& c) {
    reduce(c, 5, "first");
    std::vector<i64> counts(3, 1);
    float in = 0, out[3];
    if (c.rank() == 1)
      c.wait(c.start_all_gather(&in, out, counts, DType::f32, "logits"));
    else
      reduce(c, 576, "attn.o");
  });
  EXPECT_EQ(o.code, Code::rank_lost);
  EXPECT_THAT(o.text, AllOf(HasSubstr("do not match"), HasSubstr("all_reduce 'attn.o' of 576 i64 (sum)"),
                            HasSubstr("all_gather 'logits' of 3 f32")));
  EXPECT_LT(o.seconds, 0.5);
}

TEST(Faults, EveryArgumentCounts) {
  struct Call {
    const char* name;
    std::function<void(Communicator&, bool)> f;
  };
  std::vector<float> x(64);
  const std::vector<Call> calls{
      {"count", [](Communicator& c, bool odd) { reduce(c, odd ? 6 : 5, "r"); }},
      {"note and slot", [](Communicator& c, bool odd) { reduce(c, odd ? 300 : 3, "r"); }},
      {"part of a note", [](Communicator& c, bool odd) { reduce(c, odd ? 4 : 5, "r"); }},
      {"note and nothing",
       [](Communicator& c, bool odd) {
         if (odd)
           c.barrier("b");
         else
           reduce(c, 3, "r");
       }},
      {"type",
       [](Communicator& c, bool odd) {
         double b[8] = {};
         c.wait(c.start_all_reduce(b, b, 8, odd ? DType::i64 : DType::f64, Join::sum, "r"));
       }},
      {"join",
       [](Communicator& c, bool odd) {
         double b[8] = {};
         c.wait(c.start_all_reduce(b, b, 8, DType::f64, odd ? Join::sum : Join::max, "r"));
       }},
      {"root",
       [](Communicator& c, bool odd) {
         double b[8] = {};
         c.wait(c.start_broadcast(b, 8, DType::f64, odd ? 0 : 2, "b"));
         c.barrier("end");
       }},
      {"cut",
       [](Communicator& c, bool odd) {
         double in[4] = {}, out[4];
         std::vector<i64> cut{odd ? 2 : 1, odd ? 1 : 2, 1};
         c.wait(c.start_reduce_scatter(in, out, cut, DType::f64, Join::sum, "s"));
       }},
      {"parts",
       [](Communicator& c, bool odd) {
         double in[4] = {}, out[4];
         std::vector<i64> sends{1, 1, 1}, receives{1, 1, odd ? 2 : 1};
         c.wait(c.start_all_to_all(in, sends, out, receives, DType::f64, "a"));
       }},
  };
  for (auto& call : calls) {
    auto o = of_three([&](Communicator& c) { call.f(c, c.rank() == 1); });
    EXPECT_THAT(o.text, HasSubstr("do not match")) << call.name;
    EXPECT_LT(o.seconds, 0.5) << call.name;
  }
}

TEST(Faults, MessagesOfDifferentSizes) {
  auto o = of_three([](Communicator& c) {
    char b[100] = {};
    if (c.rank() == 0) c.wait(c.start_send(b, 100, 2, "act"));
    if (c.rank() == 2) c.wait(c.start_recv(b, 99, 0, "act"));
    c.barrier("end");
  });
  EXPECT_THAT(o.text, AllOf(HasSubstr("recv 'act' of 99 bytes from member 0"), HasSubstr("rank 2 wants 99 bytes"),
                            HasSubstr("rank 0 sends 100")));
}

TEST(Faults, AMessageThatNobodySends) {
  auto o = of_three(
      [](Communicator& c) {
        char b[100] = {};
        if (c.rank() == 2) c.wait(c.start_recv(b, 99, 0, "act"));
        if (c.rank() == 0) nap(0.5);
        c.barrier("end");
      },
      0.3);
  EXPECT_EQ(o.code, Code::rank_lost);
  EXPECT_THAT(o.text, HasSubstr("did not come"));
}

TEST(Faults, ARunHasALimit) {
  LocalWorld world(2);
  i64 g = world.add_group({0, 1});
  auto o = outcome(world, g,
                   [](Communicator& c) {
                     if (c.rank() == 1)
                       for (;;) reduce(c, 1, "alone");
                     for (int i = 0; i < 4; i++) nap(0.1);
                     c.barrier("late");
                   },
                   {.limit_s = 0.2});
  EXPECT_EQ(o.code, Code::rank_lost);
  EXPECT_THAT(o.text, HasSubstr("rank 0, 1 did not return within 0.2 s"));
  EXPECT_LT(o.seconds, 0.8);
}

TEST(Faults, WrongUse) {
  LocalWorld world(2);
  EXPECT_THROW(world.add_group({0, 0}), Error);
  EXPECT_THROW(world.add_group({0, 2}), Error);
  EXPECT_THROW(world.add_group({}), Error);
  i64 g = world.add_group({1});
  EXPECT_EQ(world.add_group({1}), g);
  EXPECT_THROW(world.join(g, 1), Error);  // not started
  world.start();
  EXPECT_THROW(world.add_group({0}), Error);
  EXPECT_THROW(world.join(g, 0), Error);
  EXPECT_THROW(world.join(7, 0), Error);
  EXPECT_THROW(LocalWorld(0), Error);
  EXPECT_THROW(LocalWorld(2, {.deadline_s = 0}), Error);
  auto c = world.join(g, 1);
  double x[4] = {};
  EXPECT_THROW(c->start_all_reduce(x, x + 1, 2, DType::f64, Join::sum, "overlap"), Error);
  EXPECT_THROW(c->start_all_reduce(x, x, -1, DType::f64, Join::sum, "negative"), Error);
  EXPECT_THROW(c->start_all_reduce(x, x, 1, DType::f16, Join::sum, "f16"), Error);
  EXPECT_THROW(c->start_broadcast(x, 1, DType::f64, 1, "root"), Error);
  EXPECT_THROW(c->start_broadcast(x, 33, DType::q8_0, 0, "block"), Error);
  EXPECT_THROW(c->wait({0}), Error);
  std::vector<Request> many;
  for (int i = 0; i < 16; i++) many.push_back(c->start_all_reduce(x, x, 1, DType::f64, Join::sum, "many"));
  EXPECT_THROW(c->start_all_reduce(x, x, 1, DType::f64, Join::sum, "one more"), Error);
  EXPECT_THROW(c->wait(many[1]), Error);  // out of order
  for (auto r : many) c->wait(r);
}

TEST(Faults, LastOperationsAreKept) {
  LocalWorld world(2);
  i64 g = world.add_group({0, 1}), own = world.add_group({1});
  run_ranks(world, [&](i64 r) {
    auto c = world.join(g, r);
    for (int i = 0; i < 20; i++) reduce(*c, i, "step");
    if (r == 1) reduce(*world.join(own, r), 7, "a name that is longer than forty-seven characters is cut there");
  });
  auto text = world.last_operations(1);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 16);
  EXPECT_THAT(text, AllOf(HasSubstr("all_reduce 'step' of 19 i64 (sum) in group {0,1}, operation 20"),
                          HasSubstr("'a name that is longer than forty-seven characte' of 7 i64 (sum) in group {1}")));
  EXPECT_THAT(text, testing::Not(HasSubstr("'step' of 4 i64")));
  EXPECT_EQ(world.last_operations(0).find("started"), std::string::npos);
}

// The region serves forked processes too; one that dies is reported by whoever started it.
TEST(Faults, ForkedRanks) {
  LocalWorld world(3, {.deadline_s = 10});
  i64 g = world.add_group({0, 1, 2});
  world.start();
  std::vector<pid_t> ranks;
  for (i64 r = 0; r < 3; r++) {
    pid_t p = fork();
    if (p == 0) {
      int status = 1;
      try {
        auto c = world.join(g, r);
        for (int i = 0; i < 100; i++) {
          i64 x[600];
          for (i64 k = 0; k < 600; k++) x[k] = k * (r + 1);
          c->wait(c->start_all_reduce(x, x, 600, DType::i64, Join::sum, "forked"));
          for (i64 k = 0; k < 600; k++)
            if (x[k] != 6 * k) _exit(2);
        }
        if (r == 1) _exit(3);  // dies without a word
        c->barrier("after");
      } catch (const Error& e) {
        status = std::string(e.what()).find("rank 1 was lost: exit status 3") != std::string::npos ? 0 : 4;
      }
      _exit(status);
    }
    ranks.push_back(p);
  }
  int status = 0;
  ASSERT_EQ(waitpid(ranks[1], &status, 0), ranks[1]);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  double t = now_s();
  world.poison(1, fmt::format("exit status {}", WEXITSTATUS(status)));
  for (size_t r : {0, 2}) {
    ASSERT_EQ(waitpid(ranks[r], &status, 0), ranks[r]);
    EXPECT_EQ(WEXITSTATUS(status), 0) << "rank " << r;
  }
  EXPECT_LT(now_s() - t, 0.2);
}

}  // namespace
}  // namespace plait::comm
