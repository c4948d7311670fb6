#!/usr/bin/env python3
"""A raw H.264 stream (Annex B) as messages: one frame each, its length in front as 32 bits, big endian.

  h264_frames.py split VIDEO.h264 > FRAMES     prints to stderr: frames, bytes of the largest, of the smallest
  h264_frames.py play FRAMES RATE > PIPE       writes the messages in real time, RATE in frames per second
"""

import struct
import sys
import time

START_CODE = b"\x00\x00\x01"
ACCESS_UNIT_DELIMITER = 9


def access_units(stream):
    """Cuts at each access unit delimiter, which encoders put in front of every frame when told to."""
    starts = []
    at = stream.find(START_CODE)
    while at >= 0:
        if at + 3 < len(stream) and stream[at + 3] & 0x1F == ACCESS_UNIT_DELIMITER:
            # A zero byte before the start code belongs to it.
            starts.append(at - 1 if at > 0 and stream[at - 1] == 0 else at)
        at = stream.find(START_CODE, at + 3)
    if not starts or starts[0] != 0:
        sys.exit("the stream does not begin with an access unit delimiter (x264: aud=1)")
    return [stream[begin:end] for begin, end in zip(starts, starts[1:] + [len(stream)])]


def messages(stream):
    """The messages of a stream that `split` wrote, lengths included."""
    at = 0
    while at < len(stream):
        (length,) = struct.unpack_from(">I", stream, at)
        yield stream[at : at + 4 + length]
        at += 4 + length


def split(path):
    with open(path, "rb") as video:
        frames = access_units(video.read())
    for frame in frames:
        sys.stdout.buffer.write(struct.pack(">I", len(frame)) + frame)
    print(len(frames), max(map(len, frames)), min(map(len, frames)), file=sys.stderr)


def play(path, rate):
    with open(path, "rb") as recording:
        stream = recording.read()
    begin = time.monotonic()
    for number, message in enumerate(messages(stream)):
        # Against the clock, not against the frame before, so that lateness does not add up.
        time.sleep(max(0.0, begin + number / rate - time.monotonic()))
        sys.stdout.buffer.write(message)
        sys.stdout.buffer.flush()


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "split":
        split(arguments[1])
    elif len(arguments) == 3 and arguments[0] == "play":
        try:
            play(arguments[1], float(arguments[2]))
        except BrokenPipeError:
            sys.exit("h264_frames.py: the reader is gone")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
