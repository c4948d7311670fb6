/* Laxity: guaranteed quality of service for stock Linux. The C API; docs/c-api.md is about how to use it.
 *
 * Written by capi/tests/header.rs from capi/src; do not edit.
 *
 * Rules for all functions:
 *
 * Pointers: a pointer to an object is null or was given by this library and not given back. Other pointers are null or point to what their type
 * says, as many as the function says, for as long as the call takes. A null pointer, a text that is not UTF-8 or an unknown constant is an error,
 * LAXITY_BAD_ARGUMENT, and nothing is done; what is said of null here is said where it means something else.
 * Ownership: what a function sets through a pointer to a pointer is the caller's, to be given to the function that frees it, once. It is set to null if the
 * function fails. An argument stays the caller's, and is copied where the library needs it later.
 * Threads: each type says so. Handlers run on a thread of the library.
 * Errors: an int is LAXITY_OK, or says what failed, and laxity_last_error() says why in words. Values above zero are the exit status that a command
 * should end with.
 * Units: times are ns, points in time those of CLOCK_MONOTONIC; sizes are bytes. Processes that fork() use the library in one of both only.
 * Versions: before version 1.0 programs are to be compiled anew with each version of the library.
 */

#ifndef LAXITY_H
#define LAXITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// It is done.
#define LAXITY_OK 0

// The request is not possible: a value out of range, a message beyond the contract, an upcall that has ended.
#define LAXITY_BAD_INPUT 2

// Admission said no, at this host or at the peer; the text names values that would fit.
#define LAXITY_REFUSED 3

// This system does not permit it to this process.
#define LAXITY_NOT_PERMITTED 4

// The peer, the network, a port or a thread of the library is absent, in use or ended.
#define LAXITY_UNAVAILABLE 5

// The call would have to wait, or the timeout has passed.
#define LAXITY_WOULD_BLOCK -1

// The other end closed the channel in order; no message follows.
#define LAXITY_CLOSED -2

// An argument breaks the rules of this header: a null pointer, a text that is not UTF-8, an unknown constant, a buffer that is too small.
#define LAXITY_BAD_ARGUMENT -3

// The library panicked, which is a bug of Laxity. The objects of the call must not be used any more, only freed.
#define LAXITY_INTERNAL -4

// The costs of this host's calibration; assumed ones if it was not calibrated.
#define LAXITY_COSTS_OF_THIS_HOST 0

// Costs that are assumed of a present-day machine, not measured.
#define LAXITY_COSTS_ASSUMED 1

// A value instead of a real-time priority: the thread stays an ordinary one.
#define LAXITY_NO_PRIORITY 0

// A thread of the host's own does its work: messages are handed over to it, and by it.
#define LAXITY_PLACEMENT_THREAD 0

// Threads in laxity_sender_send() and laxity_receiver_recv() do the host's work themselves, as far as they run as SCHED_FIFO or SCHED_RR: no hand-over, and one wake-up
// less at each end. For that, every bound contains the platform's wake-up twice.
#define LAXITY_PLACEMENT_INLINE 1

// The executive of another process, to which this one attaches (laxity serve, or the first process with LAXITY_PLACEMENT_AUTO): its address, link and costs. Upcalls need
// an executive in this process.
#define LAXITY_PLACEMENT_SERVER 2

// As LAXITY_PLACEMENT_SERVER, if a process serves; else as LAXITY_PLACEMENT_THREAD, and this process serves the next ones, unless it claims nothing.
#define LAXITY_PLACEMENT_AUTO 3

// A sender beyond its contract waits.
#define LAXITY_OVERLOAD_BLOCK 0

// A message beyond the contract is dropped and counted, and the call says LAXITY_BAD_INPUT.
#define LAXITY_OVERLOAD_DROP 1

// The value of an unsigned time or count that is unknown, or that does not exist.
#define LAXITY_UNKNOWN UINT64_MAX

// A value instead of a processor: any processor.
#define LAXITY_ANY_PROCESSOR -1

// The state of an upcall at the moment.
enum laxity_state {
  // It was not told to run, was suspended, or has finished.
  LAXITY_STATE_SUSPENDED = 0,
  // It is released every period, or was asked for and is not done.
  LAXITY_STATE_ACTIVE = 1,
  // Its handler failed. It runs no more.
  LAXITY_STATE_FAILED = 2,
  // A run took more than it declared, and its policy was LAXITY_OVERRUN_STOP. It runs no more.
  LAXITY_STATE_STOPPED = 3,
  // It was closed, or its laxity_upcalls was freed.
  LAXITY_STATE_CLOSED = 4,
};

// The result of a handler when it returns. Any other value counts as LAXITY_PROGRESS_FAILED.
enum laxity_progress {
  // It stopped after an iteration because laxity_run_should_yield() said so: the rest is done when it is called again. If nothing is left, the run
  // is done.
  LAXITY_PROGRESS_YIELD = 0,
  // There is nothing more to do in this period, even if units are left.
  LAXITY_PROGRESS_DONE = 1,
  // As LAXITY_PROGRESS_DONE, and the upcall is suspended.
  LAXITY_PROGRESS_FINISHED = 2,
  // As LAXITY_PROGRESS_DONE, and the upcall runs no more: LAXITY_STATE_FAILED.
  LAXITY_PROGRESS_FAILED = 3,
};

// The treatment of an upcall whose run has taken more than it declared. It is counted in any case.
enum laxity_overrun {
  // It is only counted: others may miss because of it, and name it as the cause.
  LAXITY_OVERRUN_COUNT = 0,
  // From its next release on it comes after all other periodic upcalls.
  LAXITY_OVERRUN_DEMOTE = 1,
  // It runs no more: LAXITY_STATE_STOPPED.
  LAXITY_OVERRUN_STOP = 2,
};

// A host: the executive that sends and receives its channels. Threads: every function that takes a host may be called from any thread at any time,
// except laxity_host_free().
struct laxity_host;

// Waits for channels that peers open to one name. Threads: one at a time.
struct laxity_listener;

// A loop that runs every period, on the thread that made it. Threads: all of its functions are for that thread alone.
struct laxity_periodic;

// The receiving end of a channel. Threads: one at a time; it may move between threads.
struct laxity_receiver;

// A run of an upcall, as its handler sees it: valid until the handler returns, on the handler's thread alone. The functions that take a run accept
// null, and then answer as if nothing were left.
struct laxity_run;

// The sending end of a channel. Threads: one at a time; it may move between threads.
struct laxity_sender;

// An upcall. Threads: as laxity_upcalls; laxity_upcall_close() ends it, in its own handler, too.
struct laxity_upcall;

// The upcalls of one thread. Threads: every function that takes it may be called from any thread at any time, except laxity_upcalls_free().
struct laxity_upcalls;

// The parameters of a host. Begin with laxity_host_config_default().
struct laxity_host_config {
  // Address and port of its link, such as "127.0.0.1:5709"; port 0 takes any. Null is loopback, any port.
  const char *bind;
  // LAXITY_COSTS_OF_THIS_HOST or LAXITY_COSTS_ASSUMED.
  int costs;
  // The SCHED_FIFO priority of the executive, 1 to 99, or LAXITY_NO_PRIORITY. If it is not permitted, the host does without it.
  int fifo_priority;
  // True if the host does without a claim of its link and processors, and does not look at other hosts' claims: for hosts that are emulated on one machine. Otherwise
  // a second host on the same link or processors is refused.
  bool claim_nothing;
  // True to lock the process's memory, where that is permitted without limit.
  bool lock_memory;
  // The longest iteration of an upcall on the executive's own thread (laxity_trusted_upcalls_start()), nanoseconds; 0 if there will be none.
  uint64_t longest_iteration_ns;
  // LAXITY_PLACEMENT_AUTO, _THREAD, _INLINE or _SERVER; inline excludes upcalls on the executive's own thread.
  int placement;
  // The time for which the executive spins with nothing to do before it sleeps, nanoseconds, up to 1,000,000; 0 for not at all. A frame or message that comes meanwhile costs no wake-up. It takes
  // processor time: no more than the time for which the thread did not run before, and never so much that the kernel stops it. Where that is not possible it is done
  // without.
  uint64_t spin_ns;
};

// The declaration of a real-time channel.
struct laxity_contract {
  // Largest message, bytes.
  uint64_t max_message;
  // Smallest message, bytes, 1 at least.
  uint64_t min_message;
  // Shortest interval between messages in the long run, ns.
  uint64_t interval_ns;
  // Messages that may be ahead of that at once, 1 at least.
  uint64_t burst;
  // From a message's logical arrival until it is complete at the receiver, ns.
  uint64_t deadline_ns;
  // LAXITY_OVERLOAD_BLOCK or LAXITY_OVERLOAD_DROP.
  int overload;
  // The number of messages in 10^9 that may be late because of the hosts' platforms, 500,000,000 at most; 0 tolerates none.
  uint32_t tolerate_ppb;
};

// The counters of a receiving channel so far.
struct laxity_channel_figures {
  // Messages that reached the application, late ones included.
  uint64_t delivered;
  // Bytes in them.
  uint64_t delivered_bytes;
  // Of these, after the deadline.
  uint64_t late;
  // Messages that never became complete.
  uint64_t lost;
  // Messages that were dropped on purpose.
  uint64_t dropped;
  // Misses (late, lost, dropped) because the sender broke its contract.
  uint64_t missed_by_sender;
  // Because the receiving application did not read.
  uint64_t missed_by_receiver;
  // Because packets were lost in transit, or late.
  uint64_t missed_by_network;
  // Because the platform took more of the processor than was allowed for.
  uint64_t missed_by_platform;
  // By Laxity's own fault, or without an explanation: zero, unless there is a bug.
  uint64_t missed_by_laxity;
  // Complete by the deadline but after the bound, without an excuse: zero, unless there is a bug.
  uint64_t over_bound;
  // The deadline, ns; LAXITY_UNKNOWN for best effort.
  uint64_t deadline_ns;
  // The largest bound that was in force: from logical arrival until complete, ns; LAXITY_UNKNOWN for best effort.
  uint64_t bound_ns;
  // The largest such delay seen, ns; LAXITY_UNKNOWN before the first message.
  uint64_t largest_response_ns;
  // The largest delay from when the application sent a message until it was complete, ns; more than the response where a message
  // was sent before its contract had room. LAXITY_UNKNOWN before the first message.
  uint64_t largest_delay_ns;
  // Messages that were delivered, with a deadline, for which it is unknown, or not yet known, whether they were in time, because the sending
  // host has another clock. Delays between two clocks are upper limits.
  uint64_t undecided;
  // The uncertainty of the sending host's clock when a message was judged last, ns: 0 if it is this host's own, LAXITY_UNKNOWN if that
  // is not known.
  uint64_t clock_error_ns;
};

// The parameters of a thread of upcalls. Begin with laxity_upcalls_config_default().
struct laxity_upcalls_config {
  // LAXITY_COSTS_OF_THIS_HOST or LAXITY_COSTS_ASSUMED, for upcalls without a host; below a host they are the host's.
  int costs;
  // The SCHED_FIFO priority, 1 to 98 and below that of the executive, or LAXITY_NO_PRIORITY. If it is not permitted, the thread does without it.
  int fifo_priority;
  // The processor to keep to, or LAXITY_ANY_PROCESSOR.
  int processor;
  // Most upcalls at once, 1 to 131072.
  size_t capacity;
  // True to lock the process's memory, where that is permitted without limit.
  bool lock_memory;
};

// Frees the state of a handler, once, when it is called no more.
typedef void (*laxity_free_state)(void *state);

// The declaration of an upcall. A field that is zero has its default, except the period.
struct laxity_upcall_spec {
  // The period, ns: one run in each, to be done by its end; 1 to an hour.
  uint64_t period_ns;
  // The longest processor time of a run, ns; 1 to the period. Zero is all of the period.
  uint64_t cost_ns;
  // The most units of work in a run; 1 to 65535. Zero is 1.
  uint32_t batch;
  // Units between two points where it asks whether to yield; 1 to the batch. Zero is all of them.
  uint32_t block;
  // An enum laxity_overrun.
  int overrun;
  // Frees the handler's state, once, when the handler is called no more: on a thread that calls the library, or on the upcalls' thread as it ends.
  // Null: nothing is called. If the upcall is not created, it is not called either.
  laxity_free_state free_state;
};

// A handler. It is called when a run begins, and again when a run goes on that had yielded. `state` is the pointer that was given when the upcall was created. It returns an
// enum laxity_progress. It runs on the one thread of its laxity_upcalls, so handlers of the same laxity_upcalls need no locks among each other. It must
// not leave by longjmp(), by an exception of C++ or by ending its thread: the library has work to do after it.
typedef int (*laxity_handler)(struct laxity_run *run, void *state);

// The time by which an aperiodic run will be done.
struct laxity_posted {
  // The latest time, ns of CLOCK_MONOTONIC; LAXITY_UNKNOWN if that has no bound.
  uint64_t by_ns;
  // 1 if that is in time, 0 if it is not, -1 if the call did not ask.
  int in_time;
};

// The counters of an upcall so far.
struct laxity_upcall_figures {
  // Its state at the moment.
  enum laxity_state state;
  // Its period, ns; LAXITY_UNKNOWN if it is aperiodic.
  uint64_t period_ns;
  // The processor time that a run may take, ns.
  uint64_t declared_cost_ns;
  // The longest time from a run's release until it is done, ns, the largest that was in force; LAXITY_UNKNOWN if it is aperiodic.
  uint64_t bound_ns;
  // Runs that were due: completed or skipped.
  uint64_t invocations;
  // Runs that were done, late ones included.
  uint64_t completed;
  // Of these, after their deadline.
  uint64_t late;
  // Runs that did not begin within their period, and so not at all.
  uint64_t skipped;
  // Late and skipped runs because an upcall took more than it declared: this one, or another of the same thread.
  uint64_t missed_by_upcall;
  // Because the platform took more than was allowed for.
  uint64_t missed_by_platform;
  // None of these: zero, unless there is a bug of Laxity.
  uint64_t missed_by_laxity;
  // Completed after the bound though by the deadline, without an excuse: zero, unless there is a bug.
  uint64_t over_bound;
  // Runs that took more of the processor than was declared.
  uint64_t over_cost;
  // The least time that was left at a run's end, ns; negative if it was late, INT64_MIN before the first.
  int64_t least_slack_ns;
  // The longest time from release to begin, ns; LAXITY_UNKNOWN before the first.
  uint64_t largest_jitter_ns;
  // The longest time from release until done, ns; LAXITY_UNKNOWN before the first.
  uint64_t largest_response_ns;
  // The most processor time that a run took, ns; LAXITY_UNKNOWN before the first.
  uint64_t largest_cost_ns;
};

// A turn of the loop.
struct laxity_tick {
  // The time at which the run was released, ns of CLOCK_MONOTONIC.
  uint64_t release_ns;
  // The time by which the loop has to come back to laxity_periodic_wait(), ns of CLOCK_MONOTONIC.
  uint64_t deadline_ns;
  // Periods that passed since the last tick in which it had no turn.
  uint64_t skipped;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The reason of the last failed call of the calling thread: one line of UTF-8, empty if none failed. Never null. It belongs to the library, and stays
// valid until another call of the same thread fails.
const char *laxity_last_error(void);

// The default: loopback and any port, the costs of this host, real-time priority 70 and locked memory where permitted, link and processors divided with the other
// executives of the machine.
struct laxity_host_config laxity_host_config_default(void);

// Starts a host. `config` may be null for the default, and is not needed afterwards. On success `*host` is the caller's, to be given to
// laxity_host_free(); otherwise it is null.
int laxity_host_start(const struct laxity_host_config *config,
                      struct laxity_host **host);

// Writes the address of the host's link with its real port, such as "127.0.0.1:40123", and a zero byte to `buffer`, which has room for `capacity` bytes;
// 64 are enough.
int laxity_host_address(const struct laxity_host *host,
                        char *buffer,
                        size_t capacity);

// The number of times since the host started that the platform took more of its executive's time at once than the bounds count on: the bounds did not hold then. Zero for
// null.
uint64_t laxity_host_gaps(const struct laxity_host *host);

// Ends the host, its channels and its threads; waits for them. Null is ignored. Senders, receivers and upcalls of the host may be used and freed
// afterwards; their functions then fail.
void laxity_host_free(struct laxity_host *host);

// Now, ns of CLOCK_MONOTONIC.
uint64_t laxity_now_ns(void);

// Receives the channels that peers open to `name`. On success `*listener` is the caller's, to be given to laxity_listener_free().
int laxity_host_listen(const struct laxity_host *host,
                       const char *name,
                       struct laxity_listener **listener);

// Waits for the next channel, at most `timeout_ns` (negative: as long as it takes); LAXITY_WOULD_BLOCK after that. On success `*receiver` is the
// caller's, to be given to laxity_receiver_free().
int laxity_listener_accept(const struct laxity_listener *listener,
                           int64_t timeout_ns,
                           struct laxity_receiver **receiver);

// Stops listening; channels that were accepted go on. Null is ignored.
void laxity_listener_free(struct laxity_listener *listener);

// Opens a real-time channel to receiver `name` at `peer` ("127.0.0.1:5709"). Waits for the answer, up to two seconds if there is none. LAXITY_REFUSED if
// either side cannot keep it. On success `*sender` is the caller's, to be given to laxity_sender_close().
int laxity_host_open(const struct laxity_host *host,
                     const char *peer,
                     const char *name,
                     const struct laxity_contract *contract,
                     struct laxity_sender **sender);

// As laxity_host_open(), best effort: messages of at most `max_message` bytes, `queue` of which may wait; a sender waits when the queue is full.
int laxity_host_open_best_effort(const struct laxity_host *host,
                                 const char *peer,
                                 const char *name,
                                 uint64_t max_message,
                                 uint64_t queue,
                                 struct laxity_sender **sender);

// The delay that is promised for each message, ns from its logical arrival; LAXITY_UNKNOWN for best effort or null.
uint64_t laxity_sender_deadline_ns(const struct laxity_sender *sender);

// Sends a message of `length` bytes, which are copied. Waits while the contract has no room, if the overload policy says so: not for handlers of
// upcalls.
int laxity_sender_send(struct laxity_sender *sender,
                       const uint8_t *data,
                       size_t length);

// As laxity_sender_send(), but never waits: LAXITY_WOULD_BLOCK where that would, LAXITY_BAD_INPUT if the contract has no room now. For handlers.
int laxity_sender_try_send(struct laxity_sender *sender,
                           const uint8_t *data,
                           size_t length);

// Closes the channel after all accepted messages have been sent, waits for that, and frees the sender, whatever it returns. Null is ignored.
int laxity_sender_close(struct laxity_sender *sender);

// Waits for the next message at most `timeout_ns` (negative: as long as it takes; 0: not at all), copies it to `buffer`, and sets `*length` to its bytes.
// LAXITY_WOULD_BLOCK after the timeout, LAXITY_CLOSED after the last message. If `capacity` is too small it is LAXITY_BAD_ARGUMENT, `*length` says how many bytes
// are needed, and the message stays the next one.
int laxity_receiver_recv(struct laxity_receiver *receiver,
                         uint8_t *buffer,
                         size_t capacity,
                         size_t *length,
                         int64_t timeout_ns);

// Sets `*descriptor` to one for poll(2), epoll(7) and their like: it is readable when a message may be there, or the channel may have ended. Wait for it only
// after laxity_receiver_recv() was LAXITY_WOULD_BLOCK. It is the receiver's: do not read or close it.
int laxity_receiver_descriptor(const struct laxity_receiver *receiver,
                               int *descriptor);

// The counters of the channel so far.
int laxity_receiver_figures(const struct laxity_receiver *receiver, struct laxity_channel_figures *figures);

// Closes the channel. Null is ignored.
void laxity_receiver_free(struct laxity_receiver *receiver);

// Units of work that are left of the run.
uint32_t laxity_run_left(const struct laxity_run *run);

// Units of the next iteration: those that may be done without asking whether to yield.
uint32_t laxity_run_block(const struct laxity_run *run);

// Tells that `units` more units are done; a number greater than the units left counts as all of them.
void laxity_run_done(struct laxity_run *run, uint32_t units);

// True if the handler should return now with LAXITY_PROGRESS_YIELD: a more urgent upcall was released, or the thread is wanted. Ask after each iteration.
bool laxity_run_should_yield(struct laxity_run *run);

// The time at which the run was released, ns of CLOCK_MONOTONIC; LAXITY_UNKNOWN if it is aperiodic.
uint64_t laxity_run_release_ns(const struct laxity_run *run);

// The time by which it has to be done, ns of CLOCK_MONOTONIC; LAXITY_UNKNOWN if it is aperiodic.
uint64_t laxity_run_deadline_ns(const struct laxity_run *run);

// Runs that were skipped since the last one, because their period had passed before they could begin.
uint64_t laxity_run_skipped(const struct laxity_run *run);

// The default: the costs of this host, real-time priority 60 where permitted, any processor, room for 256, memory locked where permitted.
struct laxity_upcalls_config laxity_upcalls_config_default(void);

// Starts a thread of upcalls: below the executive of `host`, which admits them together with its channels and preempts them; or alone, if `host` is
// null. A host has one such thread at most. `config` may be null for the default, and is not needed afterwards. On success `*upcalls` is the caller's,
// to be given to laxity_upcalls_free(); otherwise it is null.
int laxity_upcalls_start(const struct laxity_host *host,
                         const struct laxity_upcalls_config *config,
                         struct laxity_upcalls **upcalls);

// As laxity_upcalls_start(), for upcalls on the executive's own thread, among the handlers of its channels: code that is trusted. The host must have been
// started with longest_iteration_ns, and serves nothing during an iteration; a handler that does not return stops it. A handler returns after each
// iteration with LAXITY_PROGRESS_YIELD. Only periodic ones, created with laxity_upcall_create(). LAXITY_REFUSED if the host was not started for it.
int laxity_trusted_upcalls_start(const struct laxity_host *host,
                                 struct laxity_upcalls **upcalls);

// Closes all of its upcalls and ends the thread. Not from a handler. Waits until the handler that runs has returned, at most a second: one that does
// not return keeps its thread and its state. Upcalls may be used and closed afterwards; their functions then fail. Null is ignored.
void laxity_upcalls_free(struct laxity_upcalls *upcalls);

// Creates a periodic upcall, which is suspended at first; LAXITY_REFUSED if it cannot be done in time beside what is admitted. `spec` is not needed
// afterwards. `state` is given to `handler` at each call; it may be null. On success `*upcall` is the caller's, to be given to laxity_upcall_close(), and
// the state is the upcall's until laxity_upcall_spec.free_state is called or laxity_upcalls_free() has returned.
int laxity_upcall_create(const struct laxity_upcalls *upcalls,
                         const char *name,
                         const struct laxity_upcall_spec *spec,
                         laxity_handler handler,
                         void *state,
                         struct laxity_upcall **upcall);

// As laxity_upcall_create(), for an upcall that runs when it is asked for with laxity_upcall_post(), and no periodic one wants the processor. Its period
// is only the largest possible cost.
int laxity_upcall_create_aperiodic(const struct laxity_upcalls *upcalls,
                                   const char *name,
                                   const struct laxity_upcall_spec *spec,
                                   laxity_handler handler,
                                   void *state,
                                   struct laxity_upcall **upcall);

// Releases it now and every period from now on.
int laxity_upcall_run(const struct laxity_upcall *upcall);

// As laxity_upcall_run(), from `first_ns` of CLOCK_MONOTONIC on: upcalls can keep a phase to each other.
int laxity_upcall_run_from(const struct laxity_upcall *upcall, uint64_t first_ns);

// Asks for a run of an aperiodic upcall. `within_ns` asks whether it will be done within so many ns; LAXITY_UNKNOWN does not ask. The upcall
// runs in any case. `posted` may be null.
int laxity_upcall_post(const struct laxity_upcall *upcall,
                       uint64_t within_ns,
                       struct laxity_posted *posted);

// Stops releasing it. A run that has yielded is given up; one that is running ends first.
int laxity_upcall_suspend(const struct laxity_upcall *upcall);

// Its state at the moment; LAXITY_STATE_CLOSED for null.
enum laxity_state laxity_upcall_state(const struct laxity_upcall *upcall);

// The longest time from a run's release until it is done, ns, with all that was admitted when it was created; LAXITY_UNKNOWN if that has no bound,
// or for null. The bound in force now is in its figures.
uint64_t laxity_upcall_bound_ns(const struct laxity_upcall *upcall);

// Its counters so far.
int laxity_upcall_figures(const struct laxity_upcall *upcall, struct laxity_upcall_figures *figures);

// Closes it: it is not released any more. Its handler may still be running when this returns, see laxity_upcall_create() for when its state may be freed.
// Null is ignored.
void laxity_upcall_close(struct laxity_upcall *upcall);

// Waits until one of `count` upcalls is not active any more (finished, suspended, failed, stopped, closed), at most `timeout_ns` (negative: as long as
// it takes), and sets `*which` to its place in `list`. LAXITY_WOULD_BLOCK after the timeout; LAXITY_BAD_INPUT in a handler of `upcalls`, which would
// wait for itself.
int laxity_sleep_until_any(const struct laxity_upcalls *upcalls,
                           const struct laxity_upcall *const *list,
                           size_t count,
                           int64_t timeout_ns,
                           size_t *which);

// Makes the calling thread run a loop in every period, as an upcall of one unit (batch, block and free_state of `spec` are not used): from
// laxity_periodic_wait() on it has its turns. It gets the scheduling and the processor of the upcalls' thread. Not from a handler. On success `*periodic`
// is the caller's, to be given to laxity_periodic_free().
int laxity_periodic_create(const struct laxity_upcalls *upcalls,
                           const char *name,
                           const struct laxity_upcall_spec *spec,
                           struct laxity_periodic **periodic);

// Says that the work of this period is done, and waits for the next. `tick` may be null. LAXITY_BAD_INPUT if it was stopped, LAXITY_UNAVAILABLE if its
// upcalls are gone: the loop then ends.
int laxity_periodic_wait(struct laxity_periodic *periodic,
                         struct laxity_tick *tick);

// Its counters so far.
int laxity_periodic_figures(const struct laxity_periodic *periodic, struct laxity_upcall_figures *figures);

// Ends the loop; its thread is an ordinary one again. Null is ignored.
void laxity_periodic_free(struct laxity_periodic *periodic);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LAXITY_H */
