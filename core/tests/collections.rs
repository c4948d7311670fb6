//! The containers against obvious models, over random operations. The fuzz target `collections` has all operations and
//! capacities.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use laxity_core::collections::{DeadlineHeap, FifoSet, Ring, Slab, TokenMap};
use laxity_core::units::Instant;
use proptest::prelude::*;

const IDS: u32 = 12;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn deadline_heap_is_a_sorted_list(operations in prop::collection::vec((0u8..5, 0..IDS, 0u64..20), 0..200)) {
        let mut heap = DeadlineHeap::with_capacity(IDS as usize);
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        for (operation, id, at) in operations {
            let least = model.iter().map(|(&id, &at)| (at, id)).min();
            match operation {
                0 | 1 => { heap.set(id, Instant::from_nanos(at)); model.insert(id, at); }
                2 => prop_assert_eq!(heap.remove(id), model.remove(&id).is_some()),
                3 => {
                    let due = least.filter(|(due, _)| *due <= at);
                    let popped = heap.pop_due(Instant::from_nanos(at)).map(|(at, id)| (at.as_nanos(), id));
                    prop_assert_eq!(popped, due);
                    if let Some((_, id)) = due { model.remove(&id); }
                }
                _ => {
                    let popped = heap.pop().map(|(at, id)| (at.as_nanos(), id));
                    prop_assert_eq!(popped, least);
                    if let Some((_, id)) = least { model.remove(&id); }
                }
            }
            prop_assert_eq!(heap.is_empty(), model.is_empty());
            prop_assert_eq!(heap.peek().map(|(at, id)| (at.as_nanos(), id)), model.iter().map(|(&id, &at)| (at, id)).min());
        }
        for id in 0..IDS { prop_assert_eq!(heap.remove(id), model.contains_key(&id)); }
        prop_assert!(heap.is_empty());
    }

    #[test]
    fn fifo_set_is_a_row_of_queues(operations in prop::collection::vec((0u8..4, 0..IDS, 0u8..32), 0..200)) {
        let mut lists = FifoSet::with_capacity(IDS as usize);
        let mut model: Vec<VecDeque<u32>> = vec![VecDeque::new(); 32];
        for (operation, id, list) in operations {
            let inside = model.iter().any(|queue| queue.contains(&id));
            match operation {
                0 => { lists.push_back(list, id); if !inside { model[list as usize].push_back(id); } }
                1 => { lists.push_front(list, id); if !inside { model[list as usize].push_front(id); } }
                2 => { prop_assert_eq!(lists.remove(id), inside); for queue in &mut model { queue.retain(|&other| other != id); } }
                _ => prop_assert_eq!(lists.pop_front(list), model[list as usize].pop_front()),
            }
            prop_assert_eq!(lists.first_list(), (0u8..32).find(|&list| !model[list as usize].is_empty()));
            for list in 0u8..32 {
                prop_assert_eq!(lists.front(list), model[list as usize].front().copied());
                let next = (1..=32).map(|step| (list + step) % 32).find(|&next| next > 0 && !model[next as usize].is_empty());
                prop_assert_eq!(lists.next_list(list), next);
            }
        }
    }

    #[test]
    fn token_map_is_a_map(operations in prop::collection::vec((any::<bool>(), 0u64..24), 0..200)) {
        let tokens: Vec<u64> = (0..24).collect();
        let picks = operations.into_iter().map(|(insert, token)| (insert, token as usize));
        is_a_map(picks, &tokens)?;
    }

    /// A peer that could choose tokens could put all into one bucket; it is still a map.
    #[test]
    fn token_map_survives_tokens_that_were_aimed(operations in prop::collection::vec((any::<bool>(), 0usize..12), 0..200)) {
        let aimed: Vec<u64> = (0..12).map(|number| number << 32 | 15).collect();
        is_a_map(operations.into_iter(), &aimed)?;
    }

    #[test]
    fn ring_is_a_queue_that_ends_at_its_capacity(capacity in 0usize..6, operations in prop::collection::vec(any::<Option<u8>>(), 0..200)) {
        let mut ring = Ring::with_capacity(capacity);
        let mut model = VecDeque::new();
        for operation in operations {
            match operation {
                Some(value) if model.len() < capacity => { prop_assert_eq!(ring.push(value), Ok(())); model.push_back(value); }
                Some(value) => prop_assert_eq!(ring.push(value), Err(value)),
                None => prop_assert_eq!(ring.pop(), model.pop_front()),
            }
            prop_assert!(ring.iter().eq(&model));
            prop_assert_eq!((ring.len(), ring.is_full(), ring.front()), (model.len(), model.len() == capacity, model.front()));
        }
    }

    #[test]
    fn slab_never_confuses_an_old_key_with_a_new_value(operations in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..100)) {
        let mut slab = Slab::with_capacity(5);
        let (mut live, mut dead) = (BTreeMap::new(), BTreeSet::new());
        for (number, (insert, pick)) in operations.into_iter().enumerate() {
            if insert {
                match slab.insert(number) {
                    Ok(key) => { prop_assert!(live.insert(key, number).is_none() && !dead.contains(&key)); }
                    Err(_) => prop_assert_eq!(live.len(), 5),
                }
            } else if !live.is_empty() {
                let key = *live.keys().nth(pick.index(live.len())).unwrap();
                prop_assert_eq!(slab.remove(key), live.remove(&key));
                dead.insert(key);
            }
            for (&key, number) in &live { prop_assert_eq!(slab.get(key), Some(number)); }
            for &key in &dead { prop_assert_eq!(slab.get(key), None); }
            prop_assert_eq!(slab.len(), live.len());
        }
    }
}

/// Puts tokens in at places that are free, and takes them out.
fn is_a_map(operations: impl Iterator<Item = (bool, usize)>, tokens: &[u64]) -> Result<(), TestCaseError> {
    let mut map = TokenMap::with_capacity(8);
    let mut model: BTreeMap<u64, u32> = BTreeMap::new();
    for (insert, pick) in operations {
        let token = tokens[pick];
        let free = (0..8).rev().find(|place| model.values().all(|other| other != place));
        match (insert, free) {
            (true, Some(place)) => {
                let is_new = !model.contains_key(&token);
                prop_assert_eq!(map.insert(token, place), is_new);
                model.entry(token).or_insert(place);
            }
            // All places are taken: one that is in is refused.
            (true, None) => prop_assert!(!model.contains_key(&token) || !map.insert(token, 0)),
            (false, _) => prop_assert_eq!(map.remove(token), model.remove(&token).is_some()),
        }
        for token in tokens {
            prop_assert_eq!(map.get(*token), model.get(token).copied());
        }
    }
    Ok(())
}

#[test]
fn a_ring_takes_values_in_front_of_others_and_knows_its_peak() {
    let mut ring = Ring::with_capacity(4);
    assert_eq!((ring.push(1), ring.push(4), ring.insert(2, 1), ring.peak()), (Ok(()), Ok(()), Ok(()), 3));
    assert_eq!((ring.insert(3, 1), ring.insert(9, 0), ring.peak()), (Ok(()), Err(9), 4));
    assert_eq!((ring.pop(), ring.pop(), ring.pop(), ring.pop(), ring.peak()), (Some(1), Some(2), Some(3), Some(4), 4));
}

#[test]
fn the_place_of_a_value_in_a_ring_takes_few_steps_to_find() {
    let mut ring = Ring::with_capacity(6_400);
    let steps = std::cell::Cell::new(0);
    let newest = |ring: &Ring<u32>, value: u32| {
        steps.set(0);
        let newest = ring.newest(|other| {
            steps.set(steps.get() + 1);
            *other > value
        });
        (newest, steps.get())
    };
    assert_eq!(newest(&ring, 1), (0, 0));
    // Falling, and each twice.
    for value in (0..3_200).rev() {
        for copy in 0..2 {
            let (behind, steps) = newest(&ring, value);
            assert!(behind == ring.len() - copy && steps <= 16, "{behind} of {}, {steps} steps", ring.len());
            ring.insert(value, behind).unwrap();
        }
    }
    assert!(ring.iter().is_sorted());
    assert_eq!(newest(&ring, 3_199), (0, 1), "the usual case");
    assert_eq!(newest(&ring, 1_599).0, 3_200);
}

#[test]
fn a_full_ring_hands_the_value_back() {
    let mut ring = Ring::with_capacity(2);
    assert_eq!((ring.push(1), ring.push(2), ring.push(3)), (Ok(()), Ok(()), Err(3)));
    assert_eq!((ring.pop(), ring.pop(), ring.pop()), (Some(1), Some(2), None));
}
