/* An emergency stop: a speed over the limit is answered at once, with itself; the application learns of it. `.ci/wasm --renew` makes stop-c.wasm of it. */
#include "laxity-handler.h"

static const int LIMIT = 1000;
static unsigned char buffer[64];

void *laxity_buffer(unsigned bytes) { return bytes <= sizeof buffer ? buffer : 0; }

int on_message(const void *message, unsigned bytes) {
  int speed;
  if (bytes < sizeof speed)
    return LAXITY_DELIVER;
  __builtin_memcpy(&speed, message, sizeof speed);
  laxity_set(1, (unsigned)speed);
  if (speed <= LIMIT)
    return LAXITY_DONE;
  laxity_set(0, laxity_get(0) + 1);
  laxity_reply(message, bytes);
  return LAXITY_DELIVER;
}
