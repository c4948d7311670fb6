// SPDX-License-Identifier: MIT OR Apache-2.0
/* Answers every message with itself. With WATCHED it is told when that began, too, in the place of when the message was sent. */
#include "laxity-handler.h"

static unsigned long long (*const time_ns)(void) = (void *)5;

int on_message(struct laxity_event *event, unsigned long long *words) {
#ifdef WATCHED
  event->sent = time_ns();
#endif
  unsigned bytes = event->bytes;
  const unsigned *from = (void *)event->message;
  volatile unsigned *to = (void *)event->reply;
  for (unsigned at = 0; at < LAXITY_MESSAGE / 4 && at * 4 < bytes; at++)
    to[at] = from[at];
  event->reply_bytes = bytes;
  words[0] += 1;
#ifdef WATCHED
  return LAXITY_REPLY | LAXITY_TELL;
#else
  return LAXITY_REPLY;
#endif
}
