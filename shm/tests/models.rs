//! The ring, in every order of its steps that the memory model allows (the crate `loom`): the sources that ship, compiled anew with `sync` below in the
//! place of `shm/src/sync.rs`.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "the sources have more than the models use")]

#[path = "../src/ring.rs"]
mod ring;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}

use std::ops::Deref;

use loom::sync::Arc;
use loom::thread;
use ring::{HEAD, RingReader, RingShape, RingWriter};

#[derive(Clone)]
struct Memory(Arc<Vec<sync::AtomicU64>>);

impl Deref for Memory {
    type Target = [sync::AtomicU64];
    fn deref(&self) -> &[sync::AtomicU64] {
        &self.0
    }
}

/// What is read is what was put, in its order, and a slot that was freed is not read any more.
fn messages_are_whole_and_in_order() {
    const SHAPE: RingShape = RingShape { slots: 1, bytes: 8 };
    let memory = Memory(Arc::new((0..SHAPE.words().unwrap()).map(|_| sync::AtomicU64::new(0)).collect()));
    let mut writer = RingWriter::new(memory.clone(), SHAPE).unwrap();
    let mut reader = RingReader::new(memory, SHAPE).unwrap();
    let writing = thread::spawn(move || {
        let mut put = 0u64;
        // As often as it looks: a model has no time to wait for.
        for _ in 0..3 {
            writer.freed().unwrap();
            if put < 2 && writer.put(&[put + 1; HEAD], &(put + 1).to_ne_bytes()) {
                put += 1;
            }
        }
    });
    let mut read = 0u64;
    for _ in 0..3 {
        if let Some(len) = reader.next_len().unwrap() {
            let mut bytes = [0; 8];
            let head = reader.take(&mut bytes[..len]);
            reader.free();
            read += 1;
            assert_eq!((head, len, u64::from_ne_bytes(bytes)), ([read; HEAD], 8, read));
        }
    }
    writing.join().unwrap();
}

fn main() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(messages_are_whole_and_in_order);
    println!("messages are whole and in order: ok");
}
