//! Reads a fault spec from text. [`FaultSpec`] has the meaning of each item.

use super::spec::{
    CommandFault, CommandOutcome, CompletionFault, CompletionMishap, FaultSpec, TimedFault,
};
use crate::device::faults::command::FailCommand;
use crate::number::whole;
use crate::sysfs::MAX_PORTS;
use crate::wire::faults::{Direction, Mishap, PacketFault, When, Window};
use mlx5_prm::cmd::{Opcode, Status};
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// The error for a text that is not a fault spec.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("fault {item:?}: {problem}")]
pub struct FaultSpecError {
    /// The item as it was written.
    pub item: String,
    /// The defect of the item.
    pub problem: FaultItemError,
}

/// The defect of an item.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FaultItemError {
    /// The item has an unknown name.
    #[error(
        "no item {0:?}; it must be seed, drop, dup, reorder, corrupt, delay, partition, cmd, enomem, cqe, port-down, port-up, \
         freeze or fatal"
    )]
    Unknown(String),
    /// A part of the item is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The item has a part that such an item cannot have.
    #[error("it takes no {0:?}")]
    Surplus(String),
    /// A part of the item has a wrong form.
    #[error("{text:?} is not {expected}")]
    Value {
        /// The part as it was written.
        text: String,
        /// The form that the part must have.
        expected: &'static str,
    },
}

use FaultItemError as Problem;

impl FromStr for FaultSpec {
    type Err = FaultSpecError;

    fn from_str(text: &str) -> Result<Self, FaultSpecError> {
        let mut spec = Self::default();
        for item in text.split(',').map(str::trim) {
            if item.is_empty() {
                continue;
            }
            read(&mut spec, item).map_err(|problem| FaultSpecError {
                item: item.to_owned(),
                problem,
            })?;
        }
        Ok(spec)
    }
}

/// An item split into its parts: `name=value#nth@at@at:option=value`.
struct Item<'a> {
    name: &'a str,
    value: Option<&'a str>,
    at: Vec<&'a str>,
    options: Vec<&'a str>,
}

impl<'a> Item<'a> {
    fn split(text: &'a str) -> Self {
        let mut options = Vec::new();
        let mut at = Vec::new();
        // Options and times may come in any order, so this splits from the end.
        let mut head = text;
        while let Some(cut) = head.rfind([':', '@']) {
            let (rest, tail) = (&head[..cut], &head[cut + 1..]);
            if head.as_bytes()[cut] == b':' {
                options.insert(0, tail);
            } else {
                at.insert(0, tail);
            }
            head = rest;
        }
        let (name, value) = match head.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (head, None),
        };
        Self {
            name,
            value,
            at,
            options,
        }
    }

    fn value(&self, what: &'static str) -> Result<&'a str, Problem> {
        self.value
            .filter(|value| !value.is_empty())
            .ok_or(Problem::Missing(what))
    }

    /// Takes `name=value` out of the options.
    fn option(&mut self, name: &str) -> Option<&'a str> {
        let found = self
            .options
            .iter()
            .position(|option| option.split_once('=').is_some_and(|(key, _)| key == name))?;
        let (_, value) = self.options.remove(found).split_once('=')?;
        Some(value)
    }

    /// Fails if an option or a time of the item was not taken.
    fn finish(&self) -> Result<(), Problem> {
        match self.options.first().or(self.at.first()) {
            None => Ok(()),
            Some(left) => Err(Problem::Surplus((*left).to_owned())),
        }
    }
}

fn read(spec: &mut FaultSpec, text: &str) -> Result<(), Problem> {
    let item = Item::split(text);
    let (kind, direction) = if let Some(kind) = item.name.strip_suffix("-in") {
        (kind, Some(Direction::In))
    } else if let Some(kind) = item.name.strip_suffix("-out") {
        (kind, Some(Direction::Out))
    } else {
        (item.name, None)
    };
    match kind {
        "drop" | "dup" | "reorder" | "corrupt" | "delay" | "partition" => {
            spec.packets.push(packet(item, kind, direction)?);
        }
        _ if direction.is_some() => return Err(Problem::Unknown(item.name.to_owned())),
        "seed" => {
            spec.seed = number(item.value("the number")?, "a 64-bit number")?;
            item.finish()?;
        }
        "cmd" | "enomem" => spec.commands.push(command(item, kind)?),
        "cqe" => spec.completions.push(completion(item)?),
        "port-down" | "port-up" | "freeze" | "fatal" => spec.timed.push(timed(item, kind)?),
        other => return Err(Problem::Unknown(other.to_owned())),
    }
    Ok(())
}

fn packet(
    mut item: Item<'_>,
    kind: &str,
    direction: Option<Direction>,
) -> Result<PacketFault, Problem> {
    let mut fault = PacketFault::new(Mishap::Drop, When::ALWAYS);
    fault.direction = direction;
    let mut chances = Vec::new();
    match kind {
        "partition" => {
            let peer = item.value("the address")?;
            if peer != "*" {
                fault.peer = Some(address(peer)?);
            }
        }
        "delay" => {
            let (from, to) = span(item.value("the time")?)?;
            fault.what = Mishap::Delay(from, to);
            item.at.retain(|at| {
                let is_chance = at.ends_with('%') || at.starts_with('#');
                if is_chance {
                    chances.push(*at);
                }
                !is_chance
            });
        }
        _ => {
            chances.push(item.value("the chance")?);
            fault.what = match kind {
                "dup" => Mishap::Duplicate,
                "reorder" => Mishap::Reorder,
                "corrupt" => Mishap::Corrupt,
                _ => Mishap::Drop,
            };
        }
    }
    match chances.as_slice() {
        [] => {}
        [chance] => fault.when = when(chance)?,
        [_, second, ..] => return Err(Problem::Surplus((*second).to_owned())),
    }
    if kind != "partition"
        && let Some(peer) = item.option("peer")
    {
        fault.peer = Some(address(peer)?);
    }
    if !item.at.is_empty() {
        fault.window = window(item.at.remove(0))?;
    }
    item.finish()?;
    Ok(fault)
}

fn command(mut item: Item<'_>, kind: &str) -> Result<CommandFault, Problem> {
    let (name, nth) = counted(item.value("the command")?)?;
    let outcome = if kind == "enomem" {
        CommandOutcome::NoMemory
    } else {
        let status = match item.option("status") {
            None => Status::INTERNAL_ERR.0,
            Some(text) => small(text, "a status from 1 to 0xff")?,
        };
        let syndrome = match item.option("syndrome") {
            None => 0,
            Some(text) => number(text, "a 32-bit syndrome")?
                .try_into()
                .map_err(|_| value(text, "a 32-bit syndrome"))?,
        };
        CommandOutcome::Refused { status, syndrome }
    };
    item.finish()?;
    Ok(CommandFault {
        opcode: opcode(name)?,
        nth: nth
            .try_into()
            .map_err(|_| value(&nth.to_string(), "a count of commands"))?,
        outcome,
    })
}

fn opcode(name: &str) -> Result<Option<u16>, Problem> {
    /// Names that users give to calls which are no names of commands.
    const OTHERS: [(&str, u16); 4] = [
        ("ALLOC_UCTX", FailCommand::ALLOC_UCTX),
        ("QUERY_EQN", FailCommand::QUERY_EQN),
        ("REG_MR", Opcode::CREATE_MKEY.0),
        ("DEREG_MR", Opcode::DESTROY_MKEY.0),
    ];
    const EXPECTED: &str = "a command: its name in the manual (CREATE_QP), its opcode or `any`";
    if name.eq_ignore_ascii_case("any") {
        return Ok(None);
    }
    let upper = name.to_ascii_uppercase();
    let known = OTHERS
        .iter()
        .find(|(other, _)| *other == upper)
        .map(|(_, opcode)| *opcode)
        .or_else(|| (0..=u16::MAX).find(|code| Opcode(*code).name() == Some(&upper)));
    match known {
        Some(opcode) => Ok(Some(opcode)),
        None => number(name, EXPECTED)?
            .try_into()
            .map(Some)
            .map_err(|_| value(name, EXPECTED)),
    }
}

fn completion(mut item: Item<'_>) -> Result<CompletionFault, Problem> {
    let (kind, nth) = counted(item.value("what happens")?)?;
    let qpn = match item.option("qp") {
        None => None,
        Some(text) => Some(
            u32::try_from(number(text, "a QP number")?).map_err(|_| value(text, "a QP number"))?,
        ),
    };
    let what = match kind {
        "wqe" => {
            let syndrome = item
                .option("syndrome")
                .ok_or(Problem::Missing("syndrome="))?;
            CompletionMishap::Fail(small(syndrome, "a syndrome from 1 to 0xff")?)
        }
        "drop" => CompletionMishap::Drop,
        "delay" => {
            if item.options.is_empty() {
                return Err(Problem::Missing("the time"));
            }
            CompletionMishap::Delay(time(item.options.remove(0))?)
        }
        other => return Err(value(other, "wqe, drop or delay")),
    };
    item.finish()?;
    Ok(CompletionFault { what, nth, qpn })
}

fn timed(mut item: Item<'_>, kind: &str) -> Result<(Duration, TimedFault), Problem> {
    let port = match item.value.take() {
        None => 1,
        Some(text) if kind.starts_with("port-") => match whole(text) {
            Some(port) if (1..=MAX_PORTS).contains(&port) => port,
            _ => return Err(value(text, "a port, 1 or 2")),
        },
        Some(text) => return Err(Problem::Surplus(text.to_owned())),
    };
    let at = match item.at.is_empty() {
        true if kind == "freeze" => return Err(Problem::Missing("@TIME+TIME")),
        true => "0s",
        false => item.at.remove(0),
    };
    item.finish()?;
    Ok(match kind {
        "freeze" => {
            let (at, how_long) = at.split_once('+').ok_or(Problem::Missing("+TIME"))?;
            (time(at)?, TimedFault::Freeze(time(how_long)?))
        }
        "port-down" => (time(at)?, TimedFault::PortDown(port)),
        "port-up" => (time(at)?, TimedFault::PortUp(port)),
        _ => (time(at)?, TimedFault::Fatal),
    })
}

fn value(text: &str, expected: &'static str) -> Problem {
    Problem::Value {
        text: text.to_owned(),
        expected,
    }
}

/// Reads a number: decimal, or hexadecimal with 0x.
fn number(text: &str, expected: &'static str) -> Result<u64, Problem> {
    whole(text).ok_or_else(|| value(text, expected))
}

/// Reads a byte that is not 0.
fn small(text: &str, expected: &'static str) -> Result<u8, Problem> {
    u8::try_from(number(text, expected)?)
        .ok()
        .filter(|number| *number != 0)
        .ok_or_else(|| value(text, expected))
}

/// Reads `NAME#3`. Without a number the count is 1.
fn counted(text: &str) -> Result<(&str, u64), Problem> {
    match text.split_once('#') {
        None => Ok((text, 1)),
        Some((name, nth)) => Ok((name, nth_of(nth)?)),
    }
}

fn nth_of(text: &str) -> Result<u64, Problem> {
    match number(text, "a number from 1")? {
        0 => Err(value(text, "a number from 1")),
        nth => Ok(nth),
    }
}

fn address(text: &str) -> Result<Ipv4Addr, Problem> {
    text.parse().map_err(|_| value(text, "an IPv4 address"))
}

/// Reads `1%`, `0.05%`, or `#3`.
fn when(text: &str) -> Result<When, Problem> {
    const EXPECTED: &str = "a chance from 0% to 100%, in steps of 0.0001%, or #N";
    if let Some(nth) = text.strip_prefix('#') {
        return Ok(When::Nth(nth_of(nth)?));
    }
    let wrong = || value(text, EXPECTED);
    let percent = text.strip_suffix('%').ok_or_else(wrong)?;
    let (units, part) = percent.split_once('.').unwrap_or((percent, "0"));
    if part.is_empty() || part.len() > 4 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let is_decimal = units.bytes().all(|byte| byte.is_ascii_digit());
    let units = whole::<u32>(units).filter(|_| is_decimal);
    let units = units.ok_or_else(wrong)?;
    let part: u32 = format!("{part:0<4}").parse().map_err(|_| wrong())?;
    let per_million = units
        .checked_mul(10_000)
        .and_then(|units| units.checked_add(part))
        .filter(|per_million| *per_million <= 1_000_000)
        .ok_or_else(wrong)?;
    Ok(When::PerMillion(per_million))
}

/// Reads `2ms`, with the unit ns, us, ms or s.
fn time(text: &str) -> Result<Duration, Problem> {
    const EXPECTED: &str = "a time: a number with ns, us, ms or s";
    let unit = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit);
    let wrong = || value(text, EXPECTED);
    let count: u64 = whole(digits).ok_or_else(wrong)?;
    let of = match unit {
        "ns" => 1,
        "us" => 1000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    count
        .checked_mul(of)
        .map(Duration::from_nanos)
        .ok_or_else(wrong)
}

/// Reads `50us..2ms`, or one time.
fn span(text: &str) -> Result<(Duration, Duration), Problem> {
    let Some((from, to)) = text.split_once("..") else {
        let at = time(text)?;
        return Ok((at, at));
    };
    let (from, to) = (time(from)?, time(to)?);
    if from > to {
        return Err(value(text, "a span that ends after it begins"));
    }
    Ok((from, to))
}

/// Reads `1s..2s`, `1s..`, `..2s`.
fn window(text: &str) -> Result<Window, Problem> {
    let (from, to) = text
        .split_once("..")
        .ok_or_else(|| value(text, "a span of time: 1s..2s, 1s.. or ..2s"))?;
    let window = Window {
        from: if from.is_empty() {
            Duration::ZERO
        } else {
            time(from)?
        },
        to: if to.is_empty() { None } else { Some(time(to)?) },
    };
    if window.to.is_some_and(|to| to <= window.from) {
        return Err(value(text, "a span that ends after it begins"));
    }
    Ok(window)
}

#[cfg(test)]
mod tests;
