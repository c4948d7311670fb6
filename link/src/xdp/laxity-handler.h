/* A handler of a channel's messages: in WebAssembly what it exports and may call, in the kernel (clang -target bpf) what it is given. See
 * docs/events.md. */
#ifndef LAXITY_HANDLER_H
#define LAXITY_HANDLER_H

/* Of `on_message`: the message is done with, or goes to the application's queue. */
enum { LAXITY_DONE = 0, LAXITY_DELIVER = 1 };

#ifndef __bpf__

#define LAXITY_EXPORT(name) __attribute__((export_name(#name), visibility("default")))
#define LAXITY_IMPORT(name) __attribute__((import_module("laxity"), import_name(#name)))

/* To be written. Where messages of up to so many bytes are put, called once; and what is to be done with each. */
LAXITY_EXPORT(laxity_buffer) void *laxity_buffer(unsigned bytes);
LAXITY_EXPORT(on_message) int on_message(const void *message, unsigned bytes);

/* Sends on the reply channel when `on_message` returns; 0, or -1 if it is one too many or too long. */
LAXITY_IMPORT(reply) int laxity_reply(const void *message, unsigned bytes);
/* Words that the application can read, 0 to 15. */
LAXITY_IMPORT(set) void laxity_set(unsigned word, unsigned long long value);
LAXITY_IMPORT(get) unsigned long long laxity_get(unsigned word);
/* Whether the message was late. */
LAXITY_IMPORT(late) int laxity_late(void);

#else

/* Bytes of the longest message that a handler in the kernel has, and of its longest reply. */
#define LAXITY_MESSAGE 1408
/* Words that are shared with the application. */
#define LAXITY_WORDS 16

/* Further ways for a message that is done with; both may be added. A message for the application's queue is not answered: a packet is one. */
enum {
    LAXITY_REPLY = 2, /* `reply` leaves on the reply channel, if its contract has room */
    LAXITY_TELL = 4,  /* the application is woken and told of the message */
};

struct laxity_event {
    unsigned long long sequence; /* the message's number, from 0 */
    unsigned long long sent;     /* when its application sent it, ns to a microsecond; on the sender's clock */
    unsigned long long arrived;  /* when its packet came here, ns of CLOCK_MONOTONIC */
    unsigned bytes;              /* of the message, 1 to LAXITY_MESSAGE; what is behind them is of other messages */
    unsigned reply_bytes;        /* to be set: 1 to LAXITY_MESSAGE */
    unsigned char message[LAXITY_MESSAGE];
    unsigned char headers[60]; /* of the reply; not the handler's */
    unsigned char reply[LAXITY_MESSAGE + 68];
};

/* To be written. What is to be done with a message. `words` has LAXITY_WORDS of them; they stay when a handler is replaced. */
int on_message(struct laxity_event *event, unsigned long long *words);

#endif
#endif
