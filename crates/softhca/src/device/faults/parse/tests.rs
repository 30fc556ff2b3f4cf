use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> FaultSpec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn every_item_is_read() {
    let spec = parse(
        "seed=7, drop=1%,dup=0.5%,reorder=1%,delay=50us..2ms@5%,corrupt=0.1%,partition=127.9.0.2,\
         partition-out=127.9.0.3,partition-in=*,cmd=CREATE_QP#2:status=0x5:syndrome=0x1234,\
         cqe=wqe#100:syndrome=0x15,cqe=drop#50,cqe=delay#50:10ms,enomem=CREATE_CQ#1,port-down@2s,port-up@3s,\
         fatal@5s,freeze@1s+200ms",
    );
    let chance = |what, per_million| PacketFault::new(what, When::PerMillion(per_million));
    let us = Duration::from_micros;
    let partition = |peer: Option<[u8; 4]>, direction| PacketFault {
        peer: peer.map(Ipv4Addr::from),
        direction,
        ..PacketFault::new(Mishap::Drop, When::ALWAYS)
    };
    assert_eq!(spec.seed, 7);
    assert_eq!(
        spec.packets,
        [
            chance(Mishap::Drop, 10_000),
            chance(Mishap::Duplicate, 5_000),
            chance(Mishap::Reorder, 10_000),
            chance(Mishap::Delay(us(50), us(2000)), 50_000),
            chance(Mishap::Corrupt, 1_000),
            partition(Some([127, 9, 0, 2]), None),
            partition(Some([127, 9, 0, 3]), Some(Direction::Out)),
            partition(None, Some(Direction::In)),
        ]
    );
    assert_eq!(
        spec.commands,
        [
            CommandFault {
                opcode: Some(0x500),
                nth: 2,
                outcome: CommandOutcome::Refused {
                    status: 5,
                    syndrome: 0x1234
                },
            },
            CommandFault {
                opcode: Some(0x400),
                nth: 1,
                outcome: CommandOutcome::NoMemory,
            },
        ]
    );
    let completion = |what, nth| CompletionFault {
        what,
        nth,
        qpn: None,
    };
    assert_eq!(
        spec.completions,
        [
            completion(CompletionMishap::Fail(0x15), 100),
            completion(CompletionMishap::Drop, 50),
            completion(CompletionMishap::Delay(ms(10)), 50),
        ]
    );
    assert_eq!(
        spec.timed,
        [
            (ms(2000), TimedFault::PortDown(1)),
            (ms(3000), TimedFault::PortUp(1)),
            (ms(5000), TimedFault::Fatal),
            (ms(1000), TimedFault::Freeze(ms(200))),
        ]
    );
}

#[test]
fn the_parts_of_an_item_come_in_any_order() {
    let spec = parse("drop-in=#3@1s..2s:peer=127.0.0.9,drop-in=#3:peer=127.0.0.9@1s..2s");
    assert_eq!(spec.packets[0], spec.packets[1]);
    assert_eq!(
        spec.packets[0],
        PacketFault {
            what: Mishap::Drop,
            when: When::Nth(3),
            direction: Some(Direction::In),
            peer: Some(Ipv4Addr::new(127, 0, 0, 9)),
            window: Window {
                from: ms(1000),
                to: Some(ms(2000)),
            },
        }
    );
    let spec = parse("delay-out=1ms@#4@..7ms,delay=2ns");
    assert_eq!(spec.packets[0].when, When::Nth(4));
    assert_eq!(spec.packets[0].window.to, Some(ms(7)));
    assert_eq!(spec.packets[1].when, When::ALWAYS);
}

#[test]
fn commands_are_named_as_in_the_manual_or_by_number() {
    let opcodes: Vec<Option<u16>> =
        parse("cmd=any,cmd=create_mkey,cmd=REG_MR,cmd=0x999#3,enomem=ALLOC_UCTX")
            .commands
            .iter()
            .map(|fault| fault.opcode)
            .collect();
    assert_eq!(
        opcodes,
        [
            None,
            Some(0x200),
            Some(0x200),
            Some(0x999),
            Some(FailCommand::ALLOC_UCTX)
        ]
    );
}

#[test]
fn nothing_is_a_spec_too() {
    assert_eq!(parse(""), FaultSpec::default());
    assert_eq!(parse(" , "), FaultSpec::default());
}

#[test]
fn each_mistake_is_reported_with_its_item() {
    for (text, item, words) in [
        ("drop=1%,drop=2", "drop=2", "\"2\" is not a chance"),
        ("drop=101%", "drop=101%", "0% to 100%"),
        ("drop=0.00001%", "drop=0.00001%", "steps of 0.0001%"),
        ("drop", "drop", "the chance is missing"),
        ("drop=#0", "drop=#0", "a number from 1"),
        ("drop-up=1%", "drop-up=1%", "no item \"drop-up\""),
        ("seed-in=3", "seed-in=3", "no item \"seed-in\""),
        ("seed=x", "seed=x", "a 64-bit number"),
        ("delay=5", "delay=5", "ns, us, ms or s"),
        ("delay=2ms..1ms", "delay=2ms..1ms", "ends after it begins"),
        ("delay=2ms@5%@6%", "delay=2ms@5%@6%", "takes no \"6%\""),
        ("drop=1%@2s", "drop=1%@2s", "a span of time"),
        ("drop=1%@2s..1s", "drop=1%@2s..1s", "ends after it begins"),
        ("drop=1%:per=1", "drop=1%:per=1", "takes no \"per=1\""),
        ("partition=host", "partition=host", "an IPv4 address"),
        (
            "partition=*:peer=1.2.3.4",
            "partition=*:peer=1.2.3.4",
            "takes no",
        ),
        ("cmd=CREATE_FOO", "cmd=CREATE_FOO", "a command"),
        (
            "cmd=CREATE_QP:status=0",
            "cmd=CREATE_QP:status=0",
            "1 to 0xff",
        ),
        (
            "enomem=CREATE_QP:status=1",
            "enomem=CREATE_QP:status=1",
            "takes no",
        ),
        ("cqe=drop#03", "cqe=drop#03", "a number from 1"),
        ("drop=+1%", "drop=+1%", "a chance"),
        ("drop=01%", "drop=01%", "a chance"),
        ("freeze@01s+1s", "freeze@01s+1s", "a time"),
        ("cqe=wqe#3", "cqe=wqe#3", "syndrome= is missing"),
        ("cqe=delay#3", "cqe=delay#3", "the time is missing"),
        ("cqe=eat#3", "cqe=eat#3", "wqe, drop or delay"),
        ("freeze@1s", "freeze@1s", "+TIME is missing"),
        ("fatal=1@1s", "fatal=1@1s", "takes no \"1\""),
        ("port-down@1s@2s", "port-down@1s@2s", "takes no \"2s\""),
    ] {
        let error = text.parse::<FaultSpec>().unwrap_err();
        assert_eq!(error.item, item);
        let told = error.to_string();
        assert!(told.contains(words), "{text}: {told}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_spec_or_an_error(text in "[a-z0-9=#:@.,%*+-]{0,40}") {
        let _ = text.parse::<FaultSpec>();
    }
}
