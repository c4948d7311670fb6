//! One `[[upcall]]` table.

use laxity_core::event::Name;
use laxity_core::limits::{MAX_INTERVAL, MAX_PACKETS_PER_MESSAGE, MIN_INTERVAL};
use laxity_core::units::Duration;

use super::{Tabled, Upcall};
use crate::source::{FileError, in_order};

pub(super) fn read(tabled: &Tabled<'_, '_>) -> Result<Upcall, FileError> {
    let Tabled { source, at, number, table, .. } = *tabled;
    let (mut name, mut period, mut cost, mut batch, mut block) =
        (format!("upcall {}", number + 1), None, None, 1, None);
    for (key, value) in in_order(table) {
        let (found, at) = (key.get_ref().as_ref(), value.span().start);
        let key_name = format!("upcall.{found}");
        let span = |least: Duration| match source.span(&key_name, value)? {
            span if (least..=MAX_INTERVAL).contains(&span) => Ok(Some(span)),
            span => Err(source.expected(at, &key_name, span, format!("{least} to {MAX_INTERVAL}"))),
        };
        let units = || match source.count(&key_name, value)? {
            units @ 1..=MAX_PACKETS_PER_MESSAGE => Ok(units),
            units => Err(source.expected(at, &key_name, units, format!("1 to {MAX_PACKETS_PER_MESSAGE}"))),
        };
        match found {
            "name" => name = checked_name(tabled, &key_name, value)?,
            "period" => period = span(MIN_INTERVAL)?,
            "cost" => cost = span(Duration::from_nanos(1))?.map(|cost| (cost, at)),
            "batch" => batch = units()?,
            "block" => block = Some((units()?, at)),
            other => {
                let expected = "name, period, cost, batch or block";
                return Err(source.unknown(key.span().start, "upcall.", other, expected));
            }
        }
    }
    let missing = |key, expected| source.missing(at, key, expected);
    let period = period.ok_or_else(|| missing("upcall.period", "a span of time such as \"40ms\""))?;
    let cost = cost.ok_or_else(|| missing("upcall.cost", "a span of time such as \"2ms\""))?;
    if cost.0 > period {
        return Err(source.expected(cost.1, "upcall.cost", cost.0, format!("1ns to {period}, the period")));
    }
    let block = match block {
        Some((block, at)) if block > batch => {
            return Err(source.expected(at, "upcall.block", block, format!("1 to {batch}, the batch")));
        }
        Some((block, _)) => block,
        None => batch,
    };
    Ok(Upcall { name, period, cost: cost.0, batch, block })
}

/// A name that a channel could have too.
pub(super) fn checked_name(
    tabled: &Tabled<'_, '_>,
    key: &str,
    value: crate::source::Value<'_, '_>,
) -> Result<String, FileError> {
    let name = tabled.source.text(key, value, "a name in quotes such as \"camera\"")?;
    Name::new(name)
        .map_err(|error| tabled.source.error(value.span().start, key, format!("{key}: {error}")))
        .map(|name| name.as_str().to_owned())
}
