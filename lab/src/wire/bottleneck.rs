//! The decisions of the wire, without I/O and without a clock: which packet leaves when.
//!
//! Time is virtual: a transmission begins where the one before it ended, or at the packet's arrival, whichever is later. So the
//! rate is exact however late the thread that drives this wakes up.

use std::collections::VecDeque;

use laxity_core::frames::FrameId;
use laxity_core::platform::LinkModel;
use laxity_core::units::{Duration, Instant};

use super::Discipline;

/// A packet in the wire.
pub(super) struct Packet {
    pub(super) frame: FrameId,
    pub(super) len: usize,
    /// The ingress that it came through.
    pub(super) route: usize,
    pub(super) high: bool,
    pub(super) arrival: Instant,
}

/// One transmitter with its queues.
pub(super) struct Bottleneck {
    model: LinkModel,
    discipline: Discipline,
    queue_packets: usize,
    /// The high class first; all is in the second one under [`Discipline::Fifo`].
    queues: [VecDeque<Packet>; 2],
    /// The packet that is being transmitted, and the end of that.
    current: Option<(Packet, Instant)>,
    free_at: Instant,
    pub(super) busy: Duration,
}

impl Bottleneck {
    pub(super) fn new(model: LinkModel, discipline: Discipline, queue_packets: usize) -> Self {
        Self {
            model,
            discipline,
            queue_packets,
            queues: [(); 2].map(|()| VecDeque::with_capacity(queue_packets)),
            current: None,
            free_at: Instant::ZERO,
            busy: Duration::ZERO,
        }
    }

    /// Takes a packet, or gives it back if its queue is full (tail drop).
    pub(super) fn offer(&mut self, packet: Packet) -> Result<(), Packet> {
        let class = usize::from(!(packet.high && self.discipline == Discipline::TwoClassesByDscp));
        let queue = &mut self.queues[class];
        if queue.len() >= self.queue_packets {
            return Err(packet);
        }
        queue.push_back(packet);
        Ok(())
    }

    /// The next packet whose transmission has ended by `now`, and when it ended. Ask until there is none.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Packet, Instant)> {
        if self.current.is_none() {
            self.begin();
        }
        let (packet, end) = self.current.take_if(|(_, end)| *end <= now)?;
        self.free_at = end;
        self.begin();
        Some((packet, end))
    }

    /// The end of the present transmission; `None` if the wire is idle (after [`Bottleneck::pop`] has said so).
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.current.as_ref().map(|(_, end)| *end)
    }

    /// The highest class that has a packet when the transmitter is free, else the packet that comes first.
    fn begin(&mut self) {
        let arrival = |queue: &VecDeque<Packet>| queue.front().map(|packet| packet.arrival);
        let Some(first) = self.queues.iter().filter_map(arrival).min() else { return };
        let start = self.free_at.max(first);
        let queue = self.queues.iter_mut().find(|queue| arrival(queue).is_some_and(|arrival| arrival <= start));
        let Some(packet) = queue.and_then(VecDeque::pop_front) else { return };
        let occupancy = self.model.occupancy(u32::try_from(packet.len).unwrap_or(u32::MAX));
        self.busy += occupancy;
        self.current = Some((packet, start + occupancy));
    }

    /// Everything that is still in it.
    pub(super) fn clear(&mut self, mut sink: impl FnMut(Packet)) {
        self.current.take().into_iter().for_each(|(packet, _)| sink(packet));
        self.queues.iter_mut().flat_map(|queue| queue.drain(..)).for_each(sink);
    }
}

#[cfg(test)]
mod tests {
    use laxity_core::frames::{Frames, HeapFrames};
    use laxity_core::units::Rate;

    use super::*;

    struct Bench {
        frames: HeapFrames,
        wire: Bottleneck,
    }

    impl Bench {
        /// One byte a nanosecond, ten bytes of overhead.
        fn new(discipline: Discipline, packets: usize) -> Self {
            let rate = Rate::bytes_per_second(1_000_000_000);
            let model = LinkModel { rate, overhead_bytes: 10, ..LinkModel::UNLIMITED };
            Self { frames: HeapFrames::new(64, 8), wire: Bottleneck::new(model, discipline, packets) }
        }
        /// `route` serves as the packet's name.
        fn offer(&mut self, arrival: u64, len: usize, route: usize, high: bool) -> bool {
            let frame = self.frames.take().unwrap();
            let packet = Packet { frame, len, route, high, arrival: Instant::from_nanos(arrival) };
            self.wire.offer(packet).map_err(|packet| self.frames.free(packet.frame)).is_ok()
        }
        fn until(&mut self, now: u64) -> Vec<(usize, u64)> {
            let mut left = Vec::new();
            while let Some((packet, end)) = self.wire.pop(Instant::from_nanos(now)) {
                self.frames.free(packet.frame);
                left.push((packet.route, end.as_nanos()));
            }
            left
        }
    }

    #[test]
    fn the_rate_is_exact_however_late_it_is_asked() {
        for step in [1, 7, 100, 10_000] {
            let mut bench = Bench::new(Discipline::Fifo, 64);
            for route in 0..10 {
                assert!(bench.offer(100, 90, route, route % 2 == 0));
            }
            let mut left = Vec::new();
            let mut now = 100;
            while left.len() < 10 {
                now += step;
                left.extend(bench.until(now));
                assert!(left.iter().all(|&(_, end)| end <= now));
            }
            let expected: Vec<_> = (0..10).map(|route| (route, 200 + 100 * route as u64)).collect();
            assert_eq!(left, expected, "asked every {step} ns");
            assert_eq!(bench.wire.busy, Duration::from_nanos(1000));
            assert_eq!(bench.wire.ends_at(), None);
        }
    }

    #[test]
    fn an_idle_wire_begins_with_the_arrival() {
        let mut bench = Bench::new(Discipline::Fifo, 64);
        bench.offer(0, 40, 0, false);
        assert_eq!(bench.until(500), [(0, 50)]);
        bench.offer(500, 40, 1, false);
        assert_eq!((bench.until(549), bench.wire.ends_at()), (vec![], Some(Instant::from_nanos(550))));
        assert_eq!(bench.until(550), [(1, 550)]);
    }

    #[test]
    fn the_tail_is_dropped() {
        let mut bench = Bench::new(Discipline::Fifo, 3);
        assert!(bench.until(0).is_empty());
        assert_eq!([0, 1, 2, 3].map(|route| bench.offer(0, 10, route, false)), [true, true, true, false]);
        // The first one is under way now, and no longer in the queue.
        assert_eq!(bench.until(5), []);
        assert_eq!([4, 5].map(|route| bench.offer(5, 80, route, false)), [true, false]);
        assert_eq!(bench.until(1000), [(0, 20), (1, 40), (2, 60), (4, 150)]);
    }

    #[test]
    fn the_high_class_goes_first_but_interrupts_nothing_and_has_its_own_queue() {
        let mut bench = Bench::new(Discipline::TwoClassesByDscp, 2);
        bench.offer(0, 90, 0, false);
        bench.offer(0, 90, 1, false);
        assert!(!bench.offer(0, 90, 9, false));
        assert_eq!(bench.until(10), []);
        bench.offer(10, 90, 2, true);
        bench.offer(10, 90, 3, true);
        assert!(!bench.offer(10, 90, 9, true));
        assert_eq!(bench.until(10_000), [(0, 100), (2, 200), (3, 300), (1, 400)]);

        let mut fifo = Bench::new(Discipline::Fifo, 8);
        fifo.offer(0, 90, 0, false);
        fifo.offer(0, 90, 1, false);
        fifo.offer(10, 90, 2, true);
        assert_eq!(fifo.until(10_000), [(0, 100), (1, 200), (2, 300)]);
    }

    #[test]
    fn a_high_packet_that_comes_later_does_not_delay_one_that_was_there() {
        // Driven late: both are there by now, but the transmitter was free when only the low one was.
        let mut bench = Bench::new(Discipline::TwoClassesByDscp, 8);
        bench.offer(0, 90, 0, false);
        bench.offer(50, 90, 1, true);
        bench.offer(60, 90, 2, false);
        assert_eq!(bench.until(10_000), [(0, 100), (1, 200), (2, 300)]);
    }
}
