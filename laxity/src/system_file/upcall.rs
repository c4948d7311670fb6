//! One `[[upcall]]` table.

use laxity_core::limits::{MAX_INTERVAL, MAX_PACKETS_PER_MESSAGE, MIN_INTERVAL};
use laxity_core::units::Duration;

use super::DeclaredUpcall;
use crate::source::{Entry, FileError, Table};

pub(super) fn read(table: &Table<'_, '_>) -> Result<DeclaredUpcall, FileError> {
    table.only("name, period, cost, batch or block")?;
    let name = match table.get("name") {
        Some(name) => name.name()?,
        None => format!("upcall {}", table.number + 1),
    };
    let period = table.need("period", "a span of time such as \"40ms\"")?;
    let period = period.within(period.span()?, MIN_INTERVAL..=MAX_INTERVAL)?;
    let entry = table.need("cost", "a span of time such as \"2ms\"")?;
    let cost = entry.within(entry.span()?, Duration::from_nanos(1)..=MAX_INTERVAL)?;
    if cost > period {
        return Err(entry.expected(cost, format!("1ns to {period}, the period")));
    }
    let units = |entry: &Entry<'_, '_>| entry.within(entry.count()?, 1..=MAX_PACKETS_PER_MESSAGE);
    let batch = table.get("batch").map_or(Ok(1), |batch| units(&batch))?;
    let block = match table.get("block") {
        Some(entry) => match units(&entry)? {
            block if block > batch => return Err(entry.expected(block, format!("1 to {batch}, the batch"))),
            block => block,
        },
        None => batch,
    };
    Ok(DeclaredUpcall { name, period, cost, batch, block })
}
