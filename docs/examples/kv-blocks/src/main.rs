//! `kv-blocks decode DIRECTORY` and `kv-blocks prefill DIRECTORY`: prefill writes blocks of a KV cache into the memory of decode, which
//! has chosen a place for each. The two meet in a directory, in which nothing is left of them.

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use warpverbs::engine::{
    Descriptor, Engine, EngineAddress, EngineConfig, HostError, HostMemory, Kind, Operation,
    Options, Outcome, Peer, Status,
};
use warpverbs::team::{Store, open_store};

/// Bytes of a block.
const BLOCK: u32 = 64 * 1024;
const BLOCKS: u8 = 16;
const LIMIT: Duration = Duration::from_secs(60);

type Ended = Result<(), Box<dyn Error>>;

fn main() -> Ended {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [side, directory] = words.as_slice() else {
        return Err("usage: kv-blocks decode|prefill DIRECTORY".into());
    };
    let store = open_store(&format!("file://{directory}"), "kv-blocks")?;
    match side.as_str() {
        "decode" => decode(&store, directory),
        "prefill" => prefill(&*store),
        other => Err(format!("{other} is neither decode nor prefill").into()),
    }
}

/// Block `block` of prefill lies at this place of decode: where decode had room.
fn place(block: u8) -> u64 {
    offset((5 * block + 3) % BLOCKS)
}

fn offset(block: u8) -> u64 {
    u64::from(block) * u64::from(BLOCK)
}

fn decode(store: &Arc<dyn Store>, directory: &str) -> Ended {
    let cache = Arc::new(HostMemory::new(offset(BLOCKS))?);
    let engine = Engine::start(EngineConfig::new("decode"))?;
    let region = engine.register(&cache)?;
    // Other users of this machine would reach a port.
    let address = engine.listen(EngineAddress::unix(format!("{directory}/decode"))?)?;
    // For as long as this engine lives: another run finds no address of this one.
    engine.publish(store, &address)?;
    let late = "prefill has not come in time";
    let prefill = engine.accept(LIMIT).ok_or(late)?;
    prefill.notify(&engine.descriptor(region)?.to_bytes())?;

    // Comes after the last byte of the transfer, or says that it has failed.
    let written = engine
        .notice(LIMIT)
        .ok_or("prefill has not written in time")?;
    let outcome = written.transfer.map(|transfer| transfer.outcome);
    if outcome != Some(Outcome::Done) {
        return Err(format!("the transfer of prefill ended as {outcome:?}").into());
    }
    for block in 0..BLOCKS {
        let mut bytes = vec![0; usize::try_from(BLOCK)?];
        cache.read(place(block), &mut bytes)?;
        if bytes.iter().any(|&byte| byte != block + 1) {
            return Err(format!("block {block} is not the one of prefill").into());
        }
    }
    println!("decode: {BLOCKS} blocks of {BLOCK} bytes are here");
    Ok(())
}

fn prefill(store: &dyn Store) -> Ended {
    let cache = Arc::new(HostMemory::new(offset(BLOCKS))?);
    for block in 0..BLOCKS {
        let bytes = vec![block + 1; usize::try_from(BLOCK)?];
        cache.write(offset(block), &bytes)?;
    }
    let engine = Engine::start(EngineConfig::new("prefill"))?;
    engine.register(&cache)?;
    let peer = connect(&engine, store)?;
    let region = engine.notice(LIMIT).ok_or("decode has no memory in time")?;
    let remote = Descriptor::from_bytes(&region.bytes)?;
    peer.import(&remote)?;

    // One transfer of all blocks. It is concluded when every byte is at decode, or when it has failed as a whole.
    let operations: Vec<Operation> = (0..BLOCKS)
        .map(|block| Operation {
            kind: Kind::Write,
            local: cache.address() + offset(block),
            remote: remote.address + place(block),
            bytes: BLOCK.into(),
        })
        .collect();
    let transfer = peer.submit(
        &operations,
        &Options::default().with_notice(Some(b"written")),
    )?;
    let status = engine.wait(transfer, LIMIT)?;
    if status != Status::Concluded(Outcome::Done) {
        return Err(format!("the transfer ended as {status:?}").into());
    }
    engine.release(transfer)?;
    // The notice goes by this engine, which ends with this process.
    let missing = "decode has not compared the blocks in time";
    engine.peer_gone(LIMIT).ok_or(missing)?;
    println!("prefill: {BLOCKS} blocks are written");
    Ok(())
}

/// Connects to decode, which may come later.
fn connect(engine: &Engine, store: &dyn Store) -> Result<Peer, HostError> {
    let end = Instant::now() + LIMIT;
    loop {
        match engine.connect_by_name(store, "decode") {
            Err(HostError::UnknownName { .. }) if Instant::now() < end => {
                thread::sleep(Duration::from_millis(10));
            }
            connected => return connected,
        }
    }
}
