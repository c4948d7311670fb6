/* A handler of a channel's messages, in WebAssembly: what it exports, and what it may call. See docs/events.md. */
#ifndef LAXITY_HANDLER_H
#define LAXITY_HANDLER_H

#define LAXITY_EXPORT(name) __attribute__((export_name(#name), visibility("default")))
#define LAXITY_IMPORT(name) __attribute__((import_module("laxity"), import_name(#name)))

/* Of `on_message`: the message is done with, or goes to the application's queue. */
enum { LAXITY_DONE = 0, LAXITY_DELIVER = 1 };

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

#endif
