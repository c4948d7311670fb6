// SPDX-License-Identifier: MIT OR Apache-2.0
/* The emergency stop in the kernel: a speed over the limit is answered as its packet arrives, with itself, and the application is told of it.
 * `.ci/bpf --renew` makes stop.bpf.o of it. */
#include "laxity-handler.h"

int limit = 1000;

int on_message(struct laxity_event *event, unsigned long long *words) {
  int speed;
  if (event->bytes < sizeof speed)
    return LAXITY_DELIVER;
  __builtin_memcpy(&speed, event->message, sizeof speed);
  words[1] = (unsigned)speed;
  if (speed <= limit)
    return LAXITY_DONE;
  words[0] += 1;
  __builtin_memcpy(event->reply, event->message, 16);
  event->reply_bytes = event->bytes < 16 ? event->bytes : 16;
  return LAXITY_REPLY | LAXITY_TELL;
}
