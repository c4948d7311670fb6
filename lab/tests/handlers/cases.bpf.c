// SPDX-License-Identifier: MIT OR Apache-2.0
/* Handlers that are wrong, each in its way, and some that are right: `.ci/bpf --renew` makes an object of each name that is listed there. */
#include "laxity-handler.h"

static long (*const lookup)(void *map, const void *key) = (void *)1;
static unsigned long long (*const time_ns)(void) = (void *)5;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

#if defined(count)
/* Done with each message; counts them in a map of its own, and by a function of its own. */
struct {
  __uint(type, 2);
  __uint(max_entries, 4);
  __type(key, unsigned);
  __type(value, unsigned long long);
} counts SEC(".maps");

__attribute__((noinline)) int is_odd(unsigned number) { return number & 1; }

int on_message(struct laxity_event *event, unsigned long long *words) {
  unsigned place = is_odd((unsigned)event->sequence);
  unsigned long long *found = (void *)lookup(&counts, &place);
  if (found)
    *found += 1;
  words[15] = event->sent;
  return LAXITY_DONE;
}
#elif defined(slow)
/* Takes longer than it may. */
int on_message(struct laxity_event *event, unsigned long long *words) {
  for (unsigned turn = 0; turn < 20000; turn++)
    words[2] += time_ns();
  return LAXITY_DONE;
}
#elif defined(endless)
/* Does not end. */
int on_message(struct laxity_event *event, unsigned long long *words) {
  volatile unsigned long long *own = words;
  while (own[0] < 1000)
    ;
  return LAXITY_DONE;
}
#elif defined(outside)
/* Writes behind its words. */
int on_message(struct laxity_event *event, unsigned long long *words) {
  words[event->bytes] = 1;
  return LAXITY_DONE;
}
#elif defined(helper)
/* Calls what a handler may not: another program. */
static long (*const redirect)(unsigned interface, unsigned long long flags) = (void *)23;
int on_message(struct laxity_event *event, unsigned long long *words) { return redirect(1, 0); }
#elif defined(ring)
/* Has a map of a kind that a handler may not have. */
struct {
  __uint(type, 27);
  __uint(max_entries, 4096);
} own SEC(".maps");
int on_message(struct laxity_event *event, unsigned long long *words) { return lookup(&own, words) ? 1 : 0; }
#elif defined(large)
/* Has a map that is too large. */
struct {
  __uint(type, 2);
  __uint(max_entries, 1 << 20);
  __type(key, unsigned);
  __type(value, unsigned long long);
} own SEC(".maps");
int on_message(struct laxity_event *event, unsigned long long *words) { return lookup(&own, words) ? 1 : 0; }
#elif defined(nameless)
/* Has no function of the name. */
int on_packet(struct laxity_event *event, unsigned long long *words) { return LAXITY_DONE; }
#elif defined(program)
/* Is a program by itself. */
SEC("xdp") int on_message(struct laxity_event *event, unsigned long long *words) { return LAXITY_DONE; }
#elif defined(talkative)
/* Answers with more than may be, and tells of everything. */
int on_message(struct laxity_event *event, unsigned long long *words) {
  event->reply_bytes = words[0]++ & 1 ? 0xFFFFFFFF : LAXITY_MESSAGE;
  return LAXITY_REPLY | LAXITY_TELL;
}
#elif defined(scribble)
/* Writes over all that it is given. */
int on_message(struct laxity_event *event, unsigned long long *words) {
  volatile unsigned long long *own = (void *)event;
  for (unsigned at = 0; at < sizeof *event / 8; at++)
    own[at] = ~0ULL;
  return -1 & ~LAXITY_DELIVER;
}
#else
#error "no such handler"
#endif
