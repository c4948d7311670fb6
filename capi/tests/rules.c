/* What laxity.h says, held against the library. Ends with status 0, or says which line does not hold. */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "laxity.h"

#define MS INT64_C(1000000)
#define LONG (20000 * MS)
#define HOLDS(condition)                                                                                       \
  do {                                                                                                         \
    if (!(condition)) {                                                                                        \
      fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition, laxity_last_error());             \
      exit(1);                                                                                                 \
    }                                                                                                          \
  } while (0)

static atomic_int freed, runs, units;
static struct laxity_upcalls *upcalls;
static _Atomic(struct laxity_upcall *) waited;

static void count_free(void *state) {
  HOLDS(strcmp(state, "state") == 0);
  atomic_fetch_add(&freed, 1);
}

static void never_called(void *state) {
  HOLDS(state == NULL && "an upcall that was not created has no state");
}

static int counts(struct laxity_run *run, void *state) {
  HOLDS(strcmp(state, "state") == 0);
  HOLDS(laxity_run_deadline_ns(run) - laxity_run_release_ns(run) == (uint64_t)(20 * MS));
  HOLDS(laxity_run_left(run) == 6 && laxity_run_block(run) == 2);
  while (laxity_run_left(run) > 0) {
    atomic_fetch_add(&units, (int)laxity_run_block(run));
    laxity_run_done(run, laxity_run_block(run));
  }
  HOLDS(laxity_run_block(run) == 0);
  return atomic_fetch_add(&runs, 1) == 2 ? LAXITY_PROGRESS_FINISHED : LAXITY_PROGRESS_DONE;
}

/* Its first run sleeps through others, of which the second one is told. The state counts both. */
static int oversleeps(struct laxity_run *run, void *state) {
  uint64_t *counts = state;
  counts[1] += laxity_run_skipped(run);
  if (counts[0]++ > 0) return LAXITY_PROGRESS_FINISHED;
  HOLDS(poll(NULL, 0, 70) == 0);
  return LAXITY_PROGRESS_DONE;
}

static int fails(struct laxity_run *run, void *state) {
  (void)run, (void)state;
  return LAXITY_PROGRESS_FAILED;
}

static int says_nonsense(struct laxity_run *run, void *state) {
  (void)run, (void)state;
  return 77;
}

static int once(struct laxity_run *run, void *state) {
  HOLDS(laxity_run_release_ns(run) == LAXITY_UNKNOWN && laxity_run_deadline_ns(run) == LAXITY_UNKNOWN);
  atomic_fetch_add((atomic_int *)state, 1);
  return LAXITY_PROGRESS_DONE;
}

/* A handler may not wait for its own thread. */
static int waits(struct laxity_run *run, void *state) {
  (void)run;
  const struct laxity_upcall *list[] = {atomic_load(&waited)};
  size_t which;
  *(atomic_int *)state = laxity_sleep_until_any(upcalls, list, 1, -1, &which);
  return LAXITY_PROGRESS_FINISHED;
}

static struct laxity_upcall *created(const char *name, struct laxity_upcall_spec spec, laxity_handler handler, void *state) {
  struct laxity_upcall *upcall = NULL;
  HOLDS(laxity_upcall_create(upcalls, name, &spec, handler, state, &upcall) == LAXITY_OK && upcall != NULL);
  return upcall;
}

static void ends(struct laxity_upcall *upcall, enum laxity_state state) {
  const struct laxity_upcall *list[] = {upcall};
  size_t which = 7;
  HOLDS(laxity_upcall_run(upcall) == LAXITY_OK);
  HOLDS(laxity_sleep_until_any(upcalls, list, 1, LONG, &which) == LAXITY_OK && which == 0);
  HOLDS(laxity_upcall_state(upcall) == state);
}

/* Null pointers and bad texts are errors, and nothing else happens. */
static void bad_arguments(void) {
  struct laxity_host *host = (struct laxity_host *)&freed;
  struct laxity_host_config config = laxity_host_config_default();
  config.bind = "nowhere";
  HOLDS(laxity_host_start(&config, &host) == LAXITY_BAD_ARGUMENT && host == NULL);
  HOLDS(strstr(laxity_last_error(), "nowhere") != NULL);
  config.bind = "\xff";
  HOLDS(laxity_host_start(&config, &host) == LAXITY_BAD_ARGUMENT && strstr(laxity_last_error(), "UTF-8") != NULL);
  config = laxity_host_config_default();
  config.costs = 9;
  HOLDS(laxity_host_start(&config, &host) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_host_start(NULL, NULL) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_host_gaps(NULL) == 0);
  HOLDS(laxity_host_address(NULL, NULL, 0) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_host_open(NULL, NULL, NULL, NULL, NULL) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_sender_send(NULL, NULL, 1) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_receiver_recv(NULL, NULL, 0, NULL, 0) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_upcall_create(NULL, NULL, NULL, NULL, NULL, NULL) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_upcall_run(NULL) == LAXITY_BAD_ARGUMENT && laxity_upcall_suspend(NULL) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_sleep_until_any(NULL, NULL, 0, 0, NULL) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_periodic_wait(NULL, NULL) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_upcall_state(NULL) == LAXITY_STATE_CLOSED && laxity_upcall_bound_ns(NULL) == LAXITY_UNKNOWN);
  HOLDS(laxity_run_skipped(NULL) == 0);
  HOLDS(laxity_run_left(NULL) == 0 && laxity_run_should_yield(NULL) && laxity_run_release_ns(NULL) == LAXITY_UNKNOWN);
  laxity_run_done(NULL, 1);
  laxity_host_free(NULL), laxity_upcalls_free(NULL), laxity_upcall_close(NULL), laxity_periodic_free(NULL);
  laxity_listener_free(NULL), laxity_receiver_free(NULL);
  HOLDS(laxity_sender_close(NULL) == LAXITY_OK);
}

static void periodic_upcalls(void) {
  char state[] = "state";
  struct laxity_upcall_spec spec = {.period_ns = 20 * MS, .cost_ns = MS, .batch = 6, .block = 2, .free_state = count_free};
  struct laxity_upcall *upcall = created("counts", spec, counts, state);
  HOLDS(laxity_upcall_bound_ns(upcall) <= (uint64_t)(20 * MS));
  ends(upcall, LAXITY_STATE_SUSPENDED);
  struct laxity_upcall_figures figures;
  HOLDS(laxity_upcall_figures(upcall, &figures) == LAXITY_OK);
  HOLDS(figures.completed == 3 && figures.invocations == figures.completed + figures.skipped && atomic_load(&units) == 18);
  HOLDS(figures.period_ns == (uint64_t)(20 * MS) && figures.declared_cost_ns == (uint64_t)MS && figures.missed_by_laxity == 0);
  HOLDS(laxity_upcall_post(upcall, LAXITY_UNKNOWN, NULL) == LAXITY_BAD_INPUT);
  laxity_upcall_close(upcall);

  upcall = created("fails", spec, fails, state);
  HOLDS(laxity_upcall_figures(upcall, &figures) == LAXITY_OK && figures.least_slack_ns == INT64_MIN && figures.largest_cost_ns == LAXITY_UNKNOWN);
  ends(upcall, LAXITY_STATE_FAILED);
  HOLDS(laxity_upcall_run(upcall) == LAXITY_BAD_INPUT);
  laxity_upcall_close(upcall);
  upcall = created("nonsense", spec, says_nonsense, state);
  ends(upcall, LAXITY_STATE_FAILED);
  laxity_upcall_close(upcall);

  spec.free_state = NULL;
  atomic_int said = 0;
  upcall = created("waits", spec, waits, &said);
  atomic_store(&waited, upcall);
  ends(upcall, LAXITY_STATE_SUSPENDED);
  HOLDS(atomic_load(&said) == LAXITY_BAD_INPUT);
  laxity_upcall_close(upcall);

  uint64_t told[2] = {0};
  upcall = created("oversleeps", spec, oversleeps, told);
  ends(upcall, LAXITY_STATE_SUSPENDED);
  HOLDS(laxity_upcall_figures(upcall, &figures) == LAXITY_OK && told[1] >= 2 && figures.skipped == told[1]);
  laxity_upcall_close(upcall);

  /* Refused: the state stays the caller's. */
  spec = (struct laxity_upcall_spec){.period_ns = 10 * MS, .free_state = never_called};
  HOLDS(laxity_upcall_create(upcalls, "all", &spec, fails, state, &upcall) == LAXITY_REFUSED && upcall == NULL);
  spec.overrun = 9;
  HOLDS(laxity_upcall_create(upcalls, "all", &spec, fails, state, &upcall) == LAXITY_BAD_ARGUMENT);
  spec = (struct laxity_upcall_spec){.period_ns = 0, .free_state = never_called};
  HOLDS(laxity_upcall_create(upcalls, "none", &spec, fails, state, &upcall) == LAXITY_BAD_INPUT);
  HOLDS(laxity_upcall_create(upcalls, "null", &spec, NULL, state, &upcall) == LAXITY_BAD_ARGUMENT);
}

static void aperiodic_upcalls(void) {
  struct laxity_upcall *upcall = NULL;
  struct laxity_upcall_spec spec = {.period_ns = 100 * MS, .cost_ns = MS};
  static atomic_int count;
  HOLDS(laxity_upcall_create_aperiodic(upcalls, "job", &spec, once, &count, &upcall) == LAXITY_OK);
  struct laxity_posted posted;
  HOLDS(laxity_upcall_post(upcall, 1000 * MS, &posted) == LAXITY_OK && posted.in_time == 1 && posted.by_ns != LAXITY_UNKNOWN);
  HOLDS(laxity_upcall_post(upcall, LAXITY_UNKNOWN, &posted) == LAXITY_OK && posted.in_time == -1);
  for (int tries = 0; atomic_load(&count) < 2; tries++) {
    const struct laxity_upcall *list[] = {upcall};
    size_t which;
    HOLDS(tries < 1000000);
    laxity_sleep_until_any(upcalls, list, 1, MS, &which);
  }
  HOLDS(laxity_upcall_run(upcall) == LAXITY_BAD_INPUT);
  laxity_upcall_close(upcall);
}

static void *loops(void *unused) {
  struct laxity_periodic *periodic = NULL;
  struct laxity_upcall_spec spec = {.period_ns = 20 * MS, .cost_ns = MS};
  HOLDS(laxity_periodic_create(upcalls, "loop", &spec, &periodic) == LAXITY_OK);
  for (int turn = 0; turn < 5; turn++) {
    struct laxity_tick tick;
    HOLDS(laxity_periodic_wait(periodic, &tick) == LAXITY_OK && tick.deadline_ns - tick.release_ns == (uint64_t)(20 * MS));
  }
  struct laxity_upcall_figures figures;
  HOLDS(laxity_periodic_figures(periodic, &figures) == LAXITY_OK && figures.completed >= 4);
  laxity_periodic_free(periodic);
  return unused;
}

static void channels(void) {
  struct laxity_host_config config = laxity_host_config_default();
  config.costs = LAXITY_COSTS_ASSUMED, config.claim_nothing = true;
  struct laxity_host *here = NULL, *there = NULL;
  HOLDS(laxity_host_start(&config, &here) == LAXITY_OK && laxity_host_start(&config, &there) == LAXITY_OK);
  char address[64];
  HOLDS(laxity_host_address(there, address, 3) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_host_address(there, address, sizeof address) == LAXITY_OK && strncmp(address, "127.0.0.1:", 10) == 0);
  struct laxity_contract contract = {.max_message = 2000, .min_message = 1, .interval_ns = 20 * MS, .burst = 1, .deadline_ns = 60 * MS};
  struct laxity_sender *sender = NULL;
  HOLDS(laxity_host_open(here, address, "camera", &contract, &sender) == LAXITY_UNAVAILABLE && sender == NULL);
  struct laxity_listener *listener = NULL;
  HOLDS(laxity_host_listen(there, "camera", &listener) == LAXITY_OK);
  struct laxity_receiver *receiver = NULL;
  HOLDS(laxity_listener_accept(listener, 0, &receiver) == LAXITY_WOULD_BLOCK && receiver == NULL);
  HOLDS(laxity_host_open(here, address, "camera", &contract, &sender) == LAXITY_OK);
  HOLDS(laxity_sender_deadline_ns(sender) == (uint64_t)(60 * MS));
  HOLDS(laxity_listener_accept(listener, LONG, &receiver) == LAXITY_OK);
  laxity_listener_free(listener);

  static uint8_t message[2001], received[2000];
  size_t length = 0;
  memset(message, 7, sizeof message);
  struct pollfd wait = {.events = POLLIN};
  HOLDS(laxity_receiver_descriptor(receiver, NULL) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_receiver_descriptor(receiver, &wait.fd) == LAXITY_OK);
  HOLDS(laxity_receiver_recv(receiver, received, sizeof received, &length, 0) == LAXITY_WOULD_BLOCK);
  HOLDS(laxity_sender_send(sender, message, 2001) == LAXITY_BAD_INPUT && laxity_sender_send(sender, NULL, 1) == LAXITY_BAD_ARGUMENT);
  HOLDS(laxity_sender_send(sender, message, 2000) == LAXITY_OK);
  HOLDS(poll(&wait, 1, 20000) == 1 && wait.revents == POLLIN);
  HOLDS(laxity_receiver_recv(receiver, received, 1999, &length, LONG) == LAXITY_BAD_ARGUMENT && length == 2000);
  HOLDS(laxity_receiver_recv(receiver, received, 2000, &length, 0) == LAXITY_OK && memcmp(message, received, 2000) == 0);
  struct laxity_channel_figures figures;
  HOLDS(laxity_receiver_figures(receiver, &figures) == LAXITY_OK && figures.delivered == 1 && figures.deadline_ns == (uint64_t)(60 * MS));
  HOLDS(laxity_sender_close(sender) == LAXITY_OK);
  HOLDS(laxity_receiver_recv(receiver, received, 2000, &length, LONG) == LAXITY_CLOSED);
  laxity_receiver_free(receiver);
  laxity_host_free(here), laxity_host_free(there);
}

/* A block, and back. */
static int yields(struct laxity_run *run, void *state) {
  atomic_fetch_add((atomic_int *)state, 1);
  laxity_run_done(run, laxity_run_block(run));
  HOLDS(laxity_run_should_yield(run));
  return laxity_run_left(run) > 0 ? LAXITY_PROGRESS_YIELD : LAXITY_PROGRESS_FINISHED;
}

static void upcalls_on_the_executives_thread(void) {
  struct laxity_host_config config = laxity_host_config_default();
  config.costs = LAXITY_COSTS_ASSUMED, config.claim_nothing = true;
  struct laxity_host *host = NULL;
  struct laxity_upcalls *trusted = NULL;
  HOLDS(laxity_host_start(&config, &host) == LAXITY_OK);
  HOLDS(laxity_trusted_upcalls_start(host, &trusted) == LAXITY_REFUSED && trusted == NULL);
  laxity_host_free(host);
  config.placement = LAXITY_PLACEMENT_INLINE, config.spin_ns = 100000;
  HOLDS(laxity_host_start(&config, &host) == LAXITY_OK);
  laxity_host_free(host);
  config.placement = 4;
  HOLDS(laxity_host_start(&config, &host) == LAXITY_BAD_ARGUMENT && host == NULL);
  config.placement = LAXITY_PLACEMENT_THREAD, config.spin_ns = 1000001;
  HOLDS(laxity_host_start(&config, &host) != LAXITY_OK && host == NULL);
  HOLDS(strstr(laxity_last_error(), "spin is ") != NULL);
  config.spin_ns = 0;
  config.longest_iteration_ns = 200000;
  HOLDS(laxity_host_start(&config, &host) == LAXITY_OK);
  HOLDS(laxity_trusted_upcalls_start(host, &trusted) == LAXITY_OK);
  static atomic_int calls;
  struct laxity_upcall *upcall = NULL;
  struct laxity_upcall_spec spec = {.period_ns = 20 * MS, .cost_ns = 1000000, .batch = 10, .block = 4};
  HOLDS(laxity_upcall_create(trusted, "long", &spec, yields, &calls, &upcall) == LAXITY_REFUSED && upcall == NULL);
  spec.block = 2;
  HOLDS(laxity_upcall_create(trusted, "sum", &spec, yields, &calls, &upcall) == LAXITY_OK);
  HOLDS(laxity_upcall_run(upcall) == LAXITY_OK);
  size_t which = 9;
  HOLDS(laxity_sleep_until_any(trusted, (const struct laxity_upcall *[]){upcall}, 1, LONG, &which) == LAXITY_OK);
  HOLDS(which == 0 && atomic_load(&calls) == 5);
  laxity_upcall_close(upcall);
  laxity_upcalls_free(trusted);
  laxity_host_free(host);
}

int main(void) {
  bad_arguments();
  struct laxity_upcalls_config config = laxity_upcalls_config_default();
  config.costs = LAXITY_COSTS_ASSUMED;
  config.capacity = 0;
  HOLDS(laxity_upcalls_start(NULL, &config, &upcalls) == LAXITY_BAD_INPUT && upcalls == NULL);
  config.capacity = 16;
  HOLDS(laxity_upcalls_start(NULL, &config, &upcalls) == LAXITY_OK);
  periodic_upcalls();
  aperiodic_upcalls();
  pthread_t thread;
  HOLDS(pthread_create(&thread, NULL, loops, NULL) == 0 && pthread_join(thread, NULL) == 0);
  laxity_upcalls_free(upcalls);
  HOLDS(atomic_load(&freed) == 3);
  channels();
  upcalls_on_the_executives_thread();
  return 0;
}
