//! `kv-blocks decode DIRECTORY` and `kv-blocks prefill DIRECTORY`: prefill writes blocks of a KV cache into the memory of decode, which
//! has chosen a place for each. The two meet in a directory.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use warpverbs::engine::{
    Descriptor, Engine, EngineConfig, HostMemory, Kind, Operation, Options, Outcome, Status,
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
        "decode" => decode(&*store),
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

fn decode(store: &dyn Store) -> Ended {
    let cache = Arc::new(HostMemory::new(offset(BLOCKS))?);
    let engine = Engine::start(EngineConfig::new("decode"))?;
    let region = engine.register(&cache)?;
    let address = engine.listen("127.0.0.1:0".parse()?)?;
    store.put("region", &engine.descriptor(region)?.to_bytes())?;
    store.put("address", address.to_string().as_bytes())?;

    store
        .watch("written", None, LIMIT)?
        .ok_or("prefill has not written in time")?;
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
    let missing = "decode has not come in time";
    let address = store.watch("address", None, LIMIT)?.ok_or(missing)?;
    let region = store.try_get("region")?.ok_or(missing)?;
    let remote = Descriptor::from_bytes(&region)?;

    let cache = Arc::new(HostMemory::new(offset(BLOCKS))?);
    for block in 0..BLOCKS {
        let bytes = vec![block + 1; usize::try_from(BLOCK)?];
        cache.write(offset(block), &bytes)?;
    }
    let engine = Engine::start(EngineConfig::new("prefill"))?;
    engine.register(&cache)?;
    let peer = engine.connect(std::str::from_utf8(&address)?)?;
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
    let transfer = peer.submit(&operations, &Options::default())?;
    let status = engine.wait(transfer, LIMIT)?;
    if status != Status::Concluded(Outcome::Done) {
        return Err(format!("the transfer ended as {status:?}").into());
    }
    engine.release(transfer)?;
    store.put("written", b"all")?;
    println!("prefill: {BLOCKS} blocks are written");
    Ok(())
}
