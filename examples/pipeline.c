/* A video pipeline on one processor: capture, encode, send, display, admitted together on one host. The C twin of laxity/examples/pipeline.rs, which
 * explains it; docs/c-api.md says how to build it.
 *
 *   pipeline [--seconds 10] [--processor 0] [--hogs N] [--flood]
 *
 * Exit status: 0; 1 if a frame missed its end-to-end deadline by Laxity's fault, or was altered; 2 for arguments; else that of the call that failed.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "laxity.h"

static const size_t SIZES[] = {
#include "film-sizes.inc"
};
enum { FRAMES_OF_FILM = sizeof SIZES / sizeof *SIZES, ROWS = 45, ROWS_BETWEEN_YIELDS = 5, MOST_HOGS = 64, HEAD = 16, LARGEST = 1 << 17 };
#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define PERIOD (40 * MS)
#define END_TO_END (160 * MS)
#define ROW (80 * US)
/* Runs after the last frame's, which let it through. */
#define MORE_RUNS 4

/* A frame, by the period in which it was captured. */
struct frame {
  bool captured;
  uint64_t shown_after; /* From capture until the display had it, ns; 0: never. */
};

/* A stage that is an upcall. What its handler writes is read by main() when the upcall has finished. */
struct stage {
  const char *name;
  laxity_handler handler;
  struct laxity_upcall_spec spec;
  struct laxity_upcall *upcall;
  uint64_t first, due, bound;
  struct laxity_upcall_figures figures;
  struct pipeline *pipeline;
};

/* All of it. Handlers of one laxity_upcalls run on one thread: no locks. */
struct pipeline {
  uint64_t count;
  struct frame *frames;
  struct stage capture, encode, display;
  struct laxity_sender *sender;
  struct laxity_receiver *receiver;
  bool encoding;     /* A run of the encoder has begun, and has a frame. */
  uint64_t altered, refused;
  uint8_t message[HEAD + LARGEST], received[HEAD + LARGEST], expected[LARGEST];
};

static atomic_bool stop;

/* Ends the program if a call failed. */
static void must(int status, const char *what) {
  if (status == LAXITY_OK)
    return;
  fprintf(stderr, "%s: %s\n", what, laxity_last_error());
  exit(status > 0 ? status : 1);
}

/* The picture's bytes, from its number: what arrives can be compared with what was sent. */
static void paint(uint64_t number, uint8_t *bytes, size_t length) {
  uint64_t word = number * UINT64_C(0x9e3779b97f4a7c15) | 1;
  for (size_t at = 0; at < length; at += sizeof word) {
    word = word * UINT64_C(0x5851f42d4c957f2d) + UINT64_C(0x14057b7ef767814f);
    memcpy(bytes + at, &word, length - at < sizeof word ? length - at : sizeof word);
  }
}

static uint64_t processor_time(void) {
  struct timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return (uint64_t)used.tv_sec * 1000 * MS + (uint64_t)used.tv_nsec;
}

/* Which run of its upcall it is, counted by the clock, whatever was run or skipped before. */
static uint64_t turn_of(struct stage *stage, const struct laxity_run *run) {
  uint64_t number = (laxity_run_release_ns(run) - stage->first) / PERIOD;
  stage->due = number + 1;
  return number;
}

static int done(const struct stage *stage, uint64_t turn) {
  return turn + 1 >= stage->pipeline->count + MORE_RUNS ? LAXITY_PROGRESS_FINISHED : LAXITY_PROGRESS_DONE;
}

static int capture(struct laxity_run *run, void *state) {
  struct stage *stage = state;
  uint64_t turn = turn_of(stage, run);
  if (turn < stage->pipeline->count)
    stage->pipeline->frames[turn].captured = true;
  laxity_run_done(run, 1);
  return done(stage, turn);
}

/* Takes a fixed time for each row, and asks between some of them whether to yield. */
static int encode(struct laxity_run *run, void *state) {
  struct stage *stage = state;
  struct pipeline *pipeline = stage->pipeline;
  uint64_t turn = turn_of(stage, run);
  if (!pipeline->encoding && (turn >= pipeline->count || !pipeline->frames[turn].captured))
    return done(stage, turn);
  pipeline->encoding = true;
  while (laxity_run_left(run) > 0) {
    for (uint32_t row = laxity_run_block(run); row > 0; row--) {
      for (uint64_t begin = processor_time(); processor_time() - begin < ROW;)
        ;
      laxity_run_done(run, 1);
    }
    if (laxity_run_left(run) > 0 && laxity_run_should_yield(run))
      return LAXITY_PROGRESS_YIELD;
  }
  pipeline->encoding = false;
  size_t size = SIZES[turn % FRAMES_OF_FILM];
  uint64_t head[2] = {turn, stage->pipeline->capture.first + turn * PERIOD};
  memcpy(pipeline->message, head, HEAD);
  paint(turn, pipeline->message + HEAD, size);
  if (laxity_sender_try_send(pipeline->sender, pipeline->message, HEAD + size) != LAXITY_OK)
    pipeline->refused++;
  return done(stage, turn);
}

static void show(struct pipeline *pipeline, size_t length) {
  uint64_t head[2], now = laxity_now_ns();
  memcpy(head, pipeline->received, HEAD);
  size_t size = SIZES[head[0] % FRAMES_OF_FILM];
  paint(head[0], pipeline->expected, size);
  bool same = length == HEAD + size && memcmp(pipeline->received + HEAD, pipeline->expected, size) == 0;
  if (!same || head[0] >= pipeline->count || pipeline->frames[head[0]].shown_after != 0)
    pipeline->altered++;
  else
    pipeline->frames[head[0]].shown_after = now - head[1];
}

/* Two frames at most, when the platform had held one up. */
static int display(struct laxity_run *run, void *state) {
  struct stage *stage = state;
  struct pipeline *pipeline = stage->pipeline;
  uint64_t turn = turn_of(stage, run);
  while (laxity_run_left(run) > 0) {
    size_t length = 0;
    if (laxity_receiver_recv(pipeline->receiver, pipeline->received, sizeof pipeline->received, &length, 0) == LAXITY_OK && length >= HEAD)
      show(pipeline, length);
    laxity_run_done(run, 1);
    if (laxity_run_left(run) > 0 && laxity_run_should_yield(run))
      return LAXITY_PROGRESS_YIELD;
  }
  return done(stage, turn);
}

static void *hog(void *unused) {
  while (!atomic_load_explicit(&stop, memory_order_relaxed))
    ;
  return unused;
}

/* Best effort over the same host, as much as it takes. */
struct flood {
  struct laxity_sender *sender;
  struct laxity_receiver *receiver;
  uint64_t sent, received;
};

static void *flood_sends(void *state) {
  struct flood *flood = state;
  static const uint8_t message[1400];
  while (!atomic_load(&stop) && laxity_sender_send(flood->sender, message, sizeof message) == LAXITY_OK)
    flood->sent++;
  laxity_sender_close(flood->sender);
  return NULL;
}

static void *flood_receives(void *state) {
  struct flood *flood = state;
  static uint8_t message[1400];
  size_t length;
  while (laxity_receiver_recv(flood->receiver, message, sizeof message, &length, -1) == LAXITY_OK)
    flood->received++;
  laxity_receiver_free(flood->receiver);
  return NULL;
}

static void create(struct laxity_upcalls *upcalls, struct pipeline *pipeline, struct stage *stage) {
  stage->pipeline = pipeline;
  must(laxity_upcall_create(upcalls, stage->name, &stage->spec, stage->handler, stage, &stage->upcall), stage->name);
}

static uint64_t bound_of(struct stage *stage) {
  must(laxity_upcall_figures(stage->upcall, &stage->figures), stage->name);
  return stage->bound = stage->figures.bound_ns;
}

static void run_from(struct stage *stage, uint64_t first) {
  stage->first = first;
  must(laxity_upcall_run_from(stage->upcall, first), stage->name);
}

static double ms(uint64_t nanos) {
  return nanos == LAXITY_UNKNOWN ? 0 : (double)nanos / 1e6;
}

/* Whether a stage is Laxity's to answer for, and has evidence of another cause. */
static bool is_broken(const struct stage *stage) {
  return stage->figures.missed_by_laxity + stage->figures.over_bound > 0;
}

static bool is_excused(const struct stage *stage) {
  const struct laxity_upcall_figures *f = &stage->figures;
  bool over = f->largest_response_ns != LAXITY_UNKNOWN && f->largest_response_ns > f->bound_ns;
  return !is_broken(stage) && (over || f->missed_by_upcall + f->missed_by_platform > 0);
}

static bool print_stage(struct stage *stage) {
  must(laxity_upcall_figures(stage->upcall, &stage->figures), stage->name);
  const struct laxity_upcall_figures *f = &stage->figures;
  bool accounted = f->invocations == stage->due;
  printf("%-8s %" PRIu64 " runs due, %" PRIu64 " completed, %" PRIu64 " skipped: %s; bound %.3f ms, largest seen %.3f ms; %" PRIu64
         " over its cost; misses: upcall %" PRIu64 ", platform %" PRIu64 ", laxity %" PRIu64 "; over bound %" PRIu64 "\n",
         stage->name, stage->due, f->completed, f->skipped, accounted ? "all accounted for" : "NOT ALL ACCOUNTED FOR", ms(f->bound_ns),
         ms(f->largest_response_ns), f->over_cost, f->missed_by_upcall, f->missed_by_platform, f->missed_by_laxity, f->over_bound);
  return accounted && !is_broken(stage);
}

/* Prints what happened; `disturbed` is whether the platform took more of the executive's time meanwhile than the bounds count on. What missed is not
 * Laxity's if any stage has evidence of another cause, and none against Laxity; the Rust twin judges frame by frame. True if Laxity kept what it promised. */
static bool report(struct pipeline *pipeline, uint64_t bound, bool disturbed) {
  struct stage *stages[] = {&pipeline->capture, &pipeline->encode, &pipeline->display};
  bool kept = true, excused = disturbed;
  for (size_t place = 0; place < 3; place++) {
    kept = print_stage(stages[place]) && kept;
    excused = excused || is_excused(stages[place]);
  }
  struct laxity_channel_figures f;
  must(laxity_receiver_figures(pipeline->receiver, &f), "figures of the channel");
  uint64_t others = f.missed_by_sender + f.missed_by_receiver + f.missed_by_network + f.missed_by_platform;
  printf("channel  %" PRIu64 " delivered, %" PRIu64 " late, %" PRIu64 " lost, %" PRIu64 " dropped, %" PRIu64 " refused; bound %.3f ms; misses: sender %" PRIu64
         ", receiver %" PRIu64 ", network %" PRIu64 ", platform %" PRIu64 ", laxity %" PRIu64 "; over bound %" PRIu64 "\n",
         f.delivered, f.late, f.lost, f.dropped, pipeline->refused, ms(f.bound_ns), f.missed_by_sender, f.missed_by_receiver, f.missed_by_network,
         f.missed_by_platform, f.missed_by_laxity, f.over_bound);
  kept = kept && f.missed_by_laxity + f.over_bound + f.undecided == 0;
  excused = excused || others + pipeline->refused > 0;
  uint64_t late = 0, missing = 0, largest = 0;
  for (uint64_t number = 0; number < pipeline->count; number++) {
    uint64_t after = pipeline->frames[number].shown_after;
    missing += after == 0;
    late += after > END_TO_END;
    largest = after > largest ? after : largest;
  }
  uint64_t missed = late + missing, laxity = kept && excused ? 0 : missed;
  printf("pipeline %" PRIu64 " frames, %" PRIu64 " in time; end-to-end deadline %.3f ms, bound %.3f ms, largest seen %.3f ms; %" PRIu64 " late, %" PRIu64
         " missing, %" PRIu64 " altered; misses: by others %" PRIu64 ", laxity %" PRIu64 "\n",
         pipeline->count, pipeline->count - missed, ms(END_TO_END), ms(bound), ms(largest), late, missing, pipeline->altered, missed - laxity, laxity);
  return kept && laxity == 0 && pipeline->altered == 0;
}

static void open_channel(const struct laxity_host *host, const char *name, const struct laxity_contract *contract, struct laxity_sender **sender,
                         struct laxity_receiver **receiver) {
  char address[64];
  struct laxity_listener *listener;
  must(laxity_host_address(host, address, sizeof address), "address");
  must(laxity_host_listen(host, name, &listener), "listen");
  if (contract != NULL)
    must(laxity_host_open(host, address, name, contract, sender), name);
  else
    must(laxity_host_open_best_effort(host, address, name, 1400, 64, sender), name);
  must(laxity_listener_accept(listener, -1, receiver), "accept");
  laxity_listener_free(listener);
}

static _Noreturn void usage(const char *argument) {
  fprintf(stderr, "%s is unknown, or its value out of range\nusage: pipeline [--seconds 10] [--processor 0] [--hogs N] [--flood]\n", argument);
  exit(2);
}

/* The value of an argument. */
static uint64_t value_of(char **argument, uint64_t least, uint64_t most) {
  char *end, *text = argument[1];
  uint64_t number = text == NULL ? 0 : strtoull(text, &end, 10);
  if (text == NULL || *text == '\0' || *end != '\0' || number < least || number > most)
    usage(*argument);
  return number;
}

int main(int count, char **arguments) {
  uint64_t seconds = 10, processor = 0, hogs = 0;
  bool with_flood = false;
  for (int at = 1; at < count; at++) {
    if (strcmp(arguments[at], "--flood") == 0)
      with_flood = true;
    else if (strcmp(arguments[at], "--seconds") == 0)
      seconds = value_of(&arguments[at], 1, 3600), at++;
    else if (strcmp(arguments[at], "--processor") == 0)
      processor = value_of(&arguments[at], 0, CPU_SETSIZE - 1), at++;
    else if (strcmp(arguments[at], "--hogs") == 0)
      hogs = value_of(&arguments[at], 0, MOST_HOGS), at++;
    else
      usage(arguments[at]);
  }
  /* Threads that are started from here on stay there, too. */
  cpu_set_t processors;
  CPU_ZERO(&processors);
  CPU_SET(processor, &processors);
  if (sched_setaffinity(0, sizeof processors, &processors) != 0) {
    perror("processor");
    return 4;
  }

  struct laxity_host_config host_config = laxity_host_config_default();
  host_config.claim_nothing = true;
  struct laxity_host *host;
  must(laxity_host_start(&host_config, &host), "host");
  struct laxity_upcalls_config upcalls_config = laxity_upcalls_config_default();
  upcalls_config.processor = (int)processor;
  struct laxity_upcalls *upcalls;
  must(laxity_upcalls_start(host, &upcalls_config, &upcalls), "upcalls");

  struct pipeline *pipeline = calloc(1, sizeof *pipeline);
  struct frame *frames = calloc(seconds * 25 + 1, sizeof *frames);
  if (pipeline == NULL || frames == NULL)
    return 5;
  *pipeline = (struct pipeline){
      .count = seconds * 25,
      .frames = frames,
      .capture = {.name = "capture", .handler = capture, .spec = {.period_ns = PERIOD, .cost_ns = 200 * US}},
      .encode = {.name = "encode",
                 .handler = encode,
                 .spec = {.period_ns = PERIOD, .cost_ns = 4 * MS, .batch = ROWS, .block = ROWS_BETWEEN_YIELDS}},
      .display = {.name = "display", .handler = display, .spec = {.period_ns = PERIOD, .cost_ns = 800 * US, .batch = 2, .block = 1}},
  };
  struct laxity_contract contract = {.min_message = 1, .interval_ns = PERIOD, .burst = 2, .deadline_ns = 60 * MS, .overload = LAXITY_OVERLOAD_BLOCK};
  for (size_t frame = 0; frame < FRAMES_OF_FILM; frame++)
    contract.max_message = contract.max_message > HEAD + SIZES[frame] ? contract.max_message : HEAD + SIZES[frame];
  open_channel(host, "video", &contract, &pipeline->sender, &pipeline->receiver);
  create(upcalls, pipeline, &pipeline->capture);
  create(upcalls, pipeline, &pipeline->encode);
  create(upcalls, pipeline, &pipeline->display);
  struct flood flood = {0};
  if (with_flood)
    open_channel(host, "flood", NULL, &flood.sender, &flood.receiver);

  /* Everything is admitted: bounds stay as they are. Each stage is released when the one before it is done by its bound. */
  struct laxity_channel_figures channel;
  must(laxity_receiver_figures(pipeline->receiver, &channel), "figures of the channel");
  uint64_t sent = bound_of(&pipeline->capture) + bound_of(&pipeline->encode), arrived = sent + channel.bound_ns;
  uint64_t bound = arrived + bound_of(&pipeline->display);
  printf("bounds: capture %.3f + encode %.3f + channel %.3f + display %.3f = %.3f ms; end-to-end deadline %.3f ms\n", ms(pipeline->capture.bound),
         ms(pipeline->encode.bound), ms(channel.bound_ns), ms(pipeline->display.bound), ms(bound), ms(END_TO_END));
  if (bound > END_TO_END) {
    fprintf(stderr, "refused: the bounds of the stages together are longer than the end-to-end deadline\n");
    return LAXITY_REFUSED;
  }

  pthread_t threads[MOST_HOGS + 2];
  size_t started = 0;
  for (uint64_t number = 0; number < hogs; number++)
    started += pthread_create(&threads[started], NULL, hog, NULL) == 0;
  if (with_flood) {
    started += pthread_create(&threads[started], NULL, flood_sends, &flood) == 0;
    started += pthread_create(&threads[started], NULL, flood_receives, &flood) == 0;
  }

  uint64_t gaps = laxity_host_gaps(host), first = laxity_now_ns() + 100 * MS;
  run_from(&pipeline->capture, first);
  run_from(&pipeline->encode, first + pipeline->capture.bound);
  run_from(&pipeline->display, first + arrived);
  struct stage *stages[] = {&pipeline->capture, &pipeline->encode, &pipeline->display};
  for (size_t place = 0; place < 3; place++) {
    const struct laxity_upcall *waited[] = {stages[place]->upcall};
    size_t which;
    must(laxity_sleep_until_any(upcalls, waited, 1, (int64_t)((seconds + 10) * 1000 * MS), &which), "waiting for a stage");
  }
  atomic_store(&stop, true);
  bool kept = report(pipeline, bound, laxity_host_gaps(host) > gaps);

  for (size_t place = 0; place < 3; place++)
    laxity_upcall_close(stages[place]->upcall);
  laxity_upcalls_free(upcalls);
  laxity_sender_close(pipeline->sender);
  laxity_receiver_free(pipeline->receiver);
  for (size_t thread = 0; thread < started; thread++)
    pthread_join(threads[thread], NULL);
  if (with_flood)
    printf("flood    %" PRIu64 " messages sent, %" PRIu64 " received\n", flood.sent, flood.received);
  laxity_host_free(host);
  free(frames);
  free(pipeline);
  return kept ? 0 : 1;
}
