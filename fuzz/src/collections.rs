//! The containers of the core against those of the standard library: all operations, at capacity, with keys that are
//! not valid.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use laxity_core::collections::{DeadlineHeap, FifoSet, Key, Ring, Slab, TokenMap};
use laxity_core::units::Instant;

use super::bytes::Bytes;

const MOST: u64 = 9;

/// The first byte chooses the container, the second its capacity, the others what is done with it.
pub fn collections(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let (kind, capacity) = (bytes.u8() % 5, bytes.up_to(MOST) as usize);
    match kind {
        0 => deadline_heap(bytes, capacity),
        1 => fifo_set(bytes, capacity),
        2 => token_map(bytes, capacity),
        3 => slab(bytes, capacity),
        _ => ring(bytes, capacity),
    }
}

/// A map from ids to times; the first is the least by time, then by id.
fn deadline_heap(mut bytes: Bytes<'_>, capacity: usize) {
    let mut heap = DeadlineHeap::with_capacity(capacity);
    let mut model: BTreeMap<u32, u64> = BTreeMap::new();
    let first = |model: &BTreeMap<u32, u64>| model.iter().map(|(&id, &at)| (at, id)).min();
    let plain = |entry: Option<(Instant, u32)>| entry.map(|(at, id)| (at.as_nanos(), id));
    while !bytes.is_empty() {
        let operation = bytes.u8() % 4;
        match operation {
            0 if capacity > 0 => {
                let (id, at) = (bytes.place(capacity) as u32, bytes.number());
                heap.set(id, Instant::from_nanos(at));
                model.insert(id, at);
            }
            1 => {
                // One beyond the capacity is an id that cannot be in; so is what marks an absent one.
                let id = if bytes.bool() { bytes.up_to(capacity as u64) as u32 } else { u32::MAX };
                assert_eq!(heap.remove(id), model.remove(&id).is_some());
            }
            2 => {
                let now = bytes.number();
                let expected = first(&model).filter(|(at, _)| *at <= now);
                assert_eq!(plain(heap.pop_due(Instant::from_nanos(now))), expected);
                expected.map(|(_, id)| model.remove(&id));
            }
            _ => {
                let expected = first(&model);
                assert_eq!(plain(heap.pop()), expected);
                expected.map(|(_, id)| model.remove(&id));
            }
        }
        assert_eq!(heap.is_empty(), model.is_empty());
        assert_eq!(plain(heap.peek()), first(&model));
    }
    for id in (0..=capacity as u32).chain([u32::MAX]) {
        assert_eq!(heap.remove(id), model.contains_key(&id));
    }
    assert!(heap.is_empty());
}

/// 32 queues; an id is in at most one of them.
fn fifo_set(mut bytes: Bytes<'_>, capacity: usize) {
    let mut lists = FifoSet::with_capacity(capacity);
    let mut model: Vec<VecDeque<u32>> = vec![VecDeque::new(); 32];
    while !bytes.is_empty() {
        let (operation, list) = (bytes.u8() % 4, bytes.u8() % 32);
        let queue = usize::from(list);
        match operation {
            0 | 1 if capacity > 0 => {
                let id = bytes.place(capacity) as u32;
                let inside = model.iter().any(|queue| queue.contains(&id));
                match operation {
                    0 => lists.push_back(list, id),
                    _ => lists.push_front(list, id),
                }
                match operation {
                    _ if inside => {}
                    0 => model[queue].push_back(id),
                    _ => model[queue].push_front(id),
                }
            }
            2 => {
                let id = if bytes.bool() { bytes.up_to(capacity as u64) as u32 } else { u32::MAX };
                assert_eq!(lists.remove(id), model.iter().any(|queue| queue.contains(&id)));
                model.iter_mut().for_each(|queue| queue.retain(|other| *other != id));
            }
            _ => assert_eq!(lists.pop_front(list), model[queue].pop_front()),
        }
        let first = (0u8..32).find(|list| !model[usize::from(*list)].is_empty());
        assert_eq!((lists.first_list(), lists.is_empty()), (first, first.is_none()));
        for (list, queue) in (0u8..).zip(&model) {
            assert_eq!(lists.front(list), queue.front().copied());
        }
        for id in (0..=capacity as u32).chain([u32::MAX]) {
            assert_eq!(lists.contains(id), model.iter().any(|queue| queue.contains(&id)));
        }
    }
    for (list, queue) in (0u8..).zip(&mut model) {
        while let Some(id) = queue.pop_front() {
            assert_eq!(lists.pop_front(list), Some(id));
        }
        assert_eq!(lists.pop_front(list), None);
    }
}

/// A map. Tokens come from a small set and its images under what a table could be indexed by, so that they collide.
fn token_map(mut bytes: Bytes<'_>, capacity: usize) {
    let mut map = TokenMap::with_capacity(capacity);
    let mut model: BTreeMap<u64, u32> = BTreeMap::new();
    while !bytes.is_empty() {
        let (operation, shift) = (bytes.u8() % 4, bytes.up_to(63));
        let token = u64::from(bytes.u8() % 24).rotate_left(shift as u32);
        match operation {
            0 | 1 => {
                // Any of the places that are free; with none, one that is in is refused.
                let free = |place: &u32| model.values().all(|other| other != place);
                let free: Vec<u32> = (0..capacity as u32).filter(free).collect();
                if !free.is_empty() {
                    let place = free[bytes.place(free.len())];
                    assert_eq!(map.insert(token, place), !model.contains_key(&token));
                    model.entry(token).or_insert(place);
                } else if model.contains_key(&token) {
                    assert!(!map.insert(token, 0));
                }
            }
            2 => assert_eq!(map.remove(token), model.remove(&token).is_some()),
            _ => assert_eq!(map.get(token), model.get(&token).copied()),
        }
        assert!(model.iter().all(|(&token, &place)| map.get(token) == Some(place)));
    }
}

/// A map under keys that are never used twice.
fn slab(mut bytes: Bytes<'_>, capacity: usize) {
    let mut slab = Slab::with_capacity(capacity);
    let (mut live, mut dead) = (BTreeMap::<Key, u32>::new(), BTreeSet::<Key>::new());
    let mut next = 0;
    while !bytes.is_empty() {
        let operation = bytes.u8() % 4;
        let picked = |bytes: &mut Bytes<'_>, keys: Vec<Key>| {
            if keys.is_empty() { None } else { Some(keys[bytes.place(keys.len())]) }
        };
        match operation {
            0 | 1 => {
                next += 1;
                match slab.insert(next) {
                    Ok(key) => {
                        assert!(live.len() < capacity && !dead.contains(&key), "a key of an earlier value");
                        assert_eq!(live.insert(key, next), None);
                    }
                    Err(back) => assert_eq!((back, live.len()), (next, capacity)),
                }
            }
            2 => {
                if let Some(key) = picked(&mut bytes, live.keys().copied().collect()) {
                    assert_eq!(slab.remove(key), live.remove(&key));
                    dead.insert(key);
                }
            }
            _ => {
                if let Some(key) = picked(&mut bytes, dead.iter().copied().collect()) {
                    assert_eq!((slab.remove(key), slab.get_mut(key)), (None, None));
                }
                if let Some(key) = picked(&mut bytes, live.keys().copied().collect()) {
                    next += 1;
                    *slab.get_mut(key).expect("it lives") = next;
                    *slab.at_mut(key.index()).expect("it lives") += 1;
                    next += 1;
                    live.insert(key, next);
                }
            }
        }
        assert_eq!((slab.len(), slab.is_empty()), (live.len(), live.is_empty()));
        let mut keys: Vec<Key> = live.keys().copied().collect();
        keys.sort_by_key(|key| key.index());
        assert!(slab.iter().map(|(key, _)| key).eq(keys), "the keys of all values, by place");
        assert!(live.iter().all(|(&key, value)| slab.get(key) == Some(value)));
        assert!(dead.iter().all(|&key| slab.get(key).is_none()));
        for index in (0..=capacity as u32).chain([u32::MAX]) {
            let key = live.keys().copied().find(|key| key.index() == index);
            assert_eq!(slab.key_at(index), key);
            assert_eq!(slab.at(index), key.map(|key| &live[&key]));
        }
    }
}

/// A queue that is full at its capacity.
fn ring(mut bytes: Bytes<'_>, capacity: usize) {
    let mut ring = Ring::with_capacity(capacity);
    let mut model: VecDeque<u8> = VecDeque::new();
    while !bytes.is_empty() {
        if bytes.bool() {
            let value = bytes.u8();
            let fits = model.len() < capacity;
            assert_eq!(ring.push(value), if fits { Ok(()) } else { Err(value) });
            if fits {
                model.push_back(value);
            }
        } else {
            assert_eq!(ring.pop(), model.pop_front());
        }
        assert_eq!((ring.len(), ring.is_empty(), ring.capacity()), (model.len(), model.is_empty(), capacity));
        assert_eq!((ring.front(), ring.is_full()), (model.front(), model.len() == capacity));
        assert!(ring.iter().eq(&model) && ring.iter().rev().eq(model.iter().rev()));
    }
}
