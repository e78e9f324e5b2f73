//! Copies and events.

use foretoken::device::DeviceFault;

use crate::support::{fault, is_foreign, open, pattern};

#[test]
fn copies_are_checked_and_ordered() {
    let (Some(device), Some(other)) = (open(), open()) else { return };
    let mut stream = device.stream().unwrap();
    let a = device.allocate(16, "a").unwrap();
    let b = device.allocate(16, "b").unwrap();
    stream.write(&a, 0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    stream.fill(&a, 8, 8, 9).unwrap();
    stream.copy(&b, 4, &a, 6, 4).unwrap();
    stream.copy(&a, 0, &a, 8, 8).unwrap();
    let mut read = [0; 4];
    stream.read(&b, 4, &mut read).unwrap();
    assert_eq!(read, [7, 8, 9, 9]);
    stream.read(&a, 0, &mut read).unwrap();
    assert_eq!(read, [9; 4]);
    // Nothing at all is copied, too, at either end.
    stream.write(&a, 16, &[]).unwrap();
    stream.read(&a, 0, &mut []).unwrap();
    stream.copy(&a, 3, &a, 3, 0).unwrap();
    stream.fill(&a, 16, 0, 1).unwrap();

    let outside = |f| matches!(f, DeviceFault::OutOfBounds { .. });
    assert!(outside(fault(stream.write(&a, 9, &[0; 8]))));
    assert!(outside(fault(stream.read(&a, usize::MAX, &mut read))));
    assert!(outside(fault(stream.fill(&a, 0, 17, 0))));
    assert!(outside(fault(stream.copy(&a, 0, &b, 15, 2))));
    assert!(matches!(fault(stream.copy(&a, 0, &a, 4, 8)), DeviceFault::BadOperands { .. }));
    let foreign = other.allocate(16, "c").unwrap();
    assert!(is_foreign(fault(stream.write(&foreign, 0, &[0]))));
    assert!(is_foreign(fault(stream.copy(&a, 0, &foreign, 0, 1))));
    // Refusals leave all as it was.
    stream.read(&a, 0, &mut read).unwrap();
    assert_eq!(read, [9; 4]);
}

/// More than the pinned memory holds, in pieces of all sizes, then back.
#[test]
fn large_and_odd_copies_arrive_whole() {
    let Some(device) = open() else { return };
    let mut stream = device.stream().unwrap();
    let bytes = (37 << 20) + 13;
    let sent = pattern(bytes);
    let buffer = device.allocate(bytes, "large").unwrap();
    stream.write(&buffer, 0, &sent).unwrap();
    let mut got = vec![0; bytes];
    stream.read(&buffer, 0, &mut got).unwrap();
    assert!(got == sent, "one large write");

    stream.fill(&buffer, 0, bytes, 0).unwrap();
    let (mut at, mut size) = (0, 1);
    while at < bytes {
        let end = bytes.min(at + size);
        stream.write(&buffer, at, &sent[at..end]).unwrap();
        (at, size) = (end, (size * 3 + 1) % 5_000_011);
    }
    let (front, back) = got.split_at_mut(20 << 20);
    front.fill(0);
    back.fill(0);
    stream.read(&buffer, 20 << 20, back).unwrap();
    stream.read(&buffer, 0, front).unwrap();
    assert!(got == sent, "many writes");
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let (Some(device), Some(other)) = (open(), open()) else { return };
    let bytes = 64 << 20;
    let (a, b) = (device.allocate(bytes, "a").unwrap(), device.allocate(bytes, "b").unwrap());
    let (mut one, mut two) = (device.stream().unwrap(), device.stream().unwrap());
    for round in 1..=20 {
        one.fill(&a, 0, bytes, round).unwrap();
        let filled = one.record_event().unwrap();
        two.wait_event(&*filled).unwrap();
        two.copy(&b, 0, &a, 0, bytes).unwrap();
        let copied = two.record_event().unwrap();
        one.wait_event(&*copied).unwrap();
        let mut last = [0];
        two.read(&b, bytes - 1, &mut last).unwrap();
        assert_eq!(last, [round]);
        filled.wait().unwrap();
    }
    let event = one.record_event().unwrap();
    event.wait().unwrap();
    assert!(is_foreign(fault(other.stream().unwrap().wait_event(&*event))));
}
