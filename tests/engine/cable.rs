//! A cable between the TCP ends of two engines, which can be held and cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use crate::rig::LOOPBACK;

pub(crate) struct Cable {
    pub(crate) address: String,
    held: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<[TcpStream; 2]>,
}

impl Cable {
    pub(crate) fn to(address: &str) -> Self {
        let listener = TcpListener::bind(LOOPBACK).unwrap();
        let own = listener.local_addr().unwrap().to_string();
        let other = address.to_owned();
        let held = Arc::new((Mutex::new(false), Condvar::new()));
        let gate = Arc::clone(&held);
        let thread = thread::spawn(move || {
            let (near, _) = listener.accept().unwrap();
            let far = TcpStream::connect(other).unwrap();
            for (from, to) in [(&near, &far), (&far, &near)] {
                let ends = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let gate = Arc::clone(&gate);
                thread::spawn(move || carry(ends, &gate));
            }
            [near, far]
        });
        Self {
            address: own,
            held,
            thread,
        }
    }

    /// Packets sent from now on wait.
    pub(crate) fn hold(&self) {
        *self.held.0.lock().unwrap() = true;
    }

    pub(crate) fn release(&self) {
        *self.held.0.lock().unwrap() = false;
        self.held.1.notify_all();
    }

    /// Held packets are lost.
    pub(crate) fn cut(self) {
        let (held, changed) = &*self.held;
        for end in self.thread.join().unwrap() {
            // One end may have gone.
            let _ = end.shutdown(Shutdown::Both);
        }
        *held.lock().unwrap() = false;
        changed.notify_all();
    }
}

fn carry((mut from, mut to): (TcpStream, TcpStream), (held, changed): &(Mutex<bool>, Condvar)) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let is_held = held.lock().unwrap();
        drop(changed.wait_while(is_held, |is_held| *is_held).unwrap());
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}
