//! What is known of a WebAssembly module before it is compiled: whether it is small enough for that, and how much fuel it may use unseen.

use wasmtime::OperatorCost;

use crate::error::Error;

/// Fuel of a load or a store.
pub(crate) const MEMORY: u64 = 8;

/// What is wrong with a module. Names in `problem` are the module's, which may have any.
pub(crate) fn wrong(problem: impl std::fmt::Display) -> Error {
    const LONGEST: usize = 1_000;
    let of_one_line = |c: char| if c.is_control() { '?' } else { c };
    Error::Module { problem: problem.to_string().chars().take(LONGEST).map(of_one_line).collect() }
}

/// Sets the fuel of operators by their names.
macro_rules! fuel {
    ($cost:ident, $fuel:expr => $($operator:ident)+) => {
        $($cost.$operator = $fuel;)+
    };
}

/// The fuel of each operator: more of it for those that are slow on some processor.
pub(crate) fn operator_costs() -> OperatorCost {
    let mut cost = OperatorCost::new();
    fuel!(cost, MEMORY as u8 =>
        I32Load I64Load F32Load F64Load I32Load8S I32Load8U I32Load16S I32Load16U I64Load8S I64Load8U I64Load16S
        I64Load16U I64Load32S I64Load32U I32Store I64Store F32Store F64Store I32Store8 I32Store16 I64Store8
        I64Store16 I64Store32);
    fuel!(cost, 16 => I32DivS I32DivU I32RemS I32RemU I64DivS I64DivU I64RemS I64RemU);
    // Numbers that are not normal take a processor as long as that.
    fuel!(cost, 60 =>
        F32Add F32Sub F32Mul F32Div F32Sqrt F64Add F64Sub F64Mul F64Div F64Sqrt F64PromoteF32 F32DemoteF64
        F32Ceil F32Floor F32Trunc F32Nearest F64Ceil F64Floor F64Trunc F64Nearest F32Min F32Max F64Min F64Max
        I32TruncF32S I32TruncF32U I32TruncF64S I32TruncF64U I64TruncF32S I64TruncF32U I64TruncF64S I64TruncF64U
        I32TruncSatF32S I32TruncSatF32U I32TruncSatF64S I32TruncSatF64U I64TruncSatF32S I64TruncSatF32U
        I64TruncSatF64S I64TruncSatF64U F32ConvertI32S F32ConvertI32U F32ConvertI64S F32ConvertI64U
        F64ConvertI32S F64ConvertI32U F64ConvertI64S F64ConvertI64U);
    fuel!(cost, 8 => I32Mul I64Mul I32Popcnt I64Popcnt I32Clz I64Clz I32Ctz I64Ctz);
    // Each time around a loop, and in each function, the fuel is looked at.
    fuel!(cost, 8 => If Loop Br BrIf BrTable Call CallIndirect);
    fuel!(cost, 100 =>
        MemoryCopy MemoryFill MemoryInit MemoryGrow TableCopy TableFill TableInit TableGrow DataDrop ElemDrop
        TableGet TableSet RefFunc);
    cost.variable.table_copy_per_element = 8;
    cost.variable.table_fill_per_element = 8;
    cost.variable.table_init_per_element = 50;
    cost
}

/// Functions of a module at most, and what each may have.
const MAX_FUNCTIONS: usize = 1_000;
const MAX_PARAMETERS: usize = 16;
const MAX_LOCALS: u32 = 1_000;
const MAX_NESTING: u32 = 100;
const MAX_FUNCTION_BYTES: usize = 16 << 10;

/// What a function calls, and the fuel of all its operators together.
#[derive(Default)]
struct FunctionShape {
    fuel: u64,
    calls: Vec<usize>,
    calls_through_table: bool,
}

/// Fuel that a module, of bytes that may be anything, may use from one look at what is left to the next. Functions look when they begin, and at
/// the beginning of each loop, but not when a call returns: so it is what all functions of a chain of calls may use.
///
/// # Errors
/// It is no module, or larger than one may be.
pub(crate) fn unseen_fuel(bytes: &[u8]) -> Result<u64, Error> {
    let unreadable = |error: wasmparser::BinaryReaderError| wrong(format!("it cannot be read: {error}"));
    let costs = operator_costs();
    let (mut imported, mut functions, mut in_tables) = (0, Vec::new(), Vec::new());
    for part in wasmparser::Parser::new(0).parse_all(bytes) {
        use wasmparser::Payload;
        match part.map_err(unreadable)? {
            Payload::TypeSection(types) => {
                for function in types.into_iter_err_on_gc_types() {
                    let found = function.map_err(unreadable)?.params().len();
                    if found > MAX_PARAMETERS {
                        return Err(wrong(format!(
                            "a function has {found} parameters, expected at most {MAX_PARAMETERS}"
                        )));
                    }
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    imported += usize::from(matches!(import.map_err(unreadable)?.ty, wasmparser::TypeRef::Func(_)));
                }
            }
            Payload::ElementSection(elements) => {
                for element in elements {
                    in_tables.extend(functions_of(element.map_err(unreadable)?.items).map_err(unreadable)?);
                }
            }
            Payload::CodeSectionEntry(body) => {
                if functions.len() == MAX_FUNCTIONS {
                    return Err(wrong(format!("it has more than {MAX_FUNCTIONS} functions")));
                }
                functions.push(function_shape(&body, &costs)?);
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {
                return Err(wrong("it is a component, expected a module"));
            }
            _ => {}
        }
    }
    let place = |function: u32| (function as usize).checked_sub(imported).filter(|place| *place < functions.len());
    let in_tables: Vec<usize> = in_tables.into_iter().filter_map(place).collect();
    let of_calls = |function: &FunctionShape| -> Vec<usize> {
        let direct = function.calls.iter().filter_map(|call| place(*call as u32));
        let through = in_tables.iter().copied().filter(|_| function.calls_through_table);
        direct.chain(through).collect()
    };
    let calls: Vec<Vec<usize>> = functions.iter().map(of_calls).collect();
    let mut chains = vec![CallChain::Unknown; functions.len()];
    let mut unseen = 0;
    for function in 0..functions.len() {
        unseen = longest_chain(function, &functions, &calls, &mut chains)?.max(unseen);
    }
    Ok(unseen)
}

fn function_shape(body: &wasmparser::FunctionBody<'_>, costs: &OperatorCost) -> Result<FunctionShape, Error> {
    use wasmparser::Operator;
    let unreadable = |error: wasmparser::BinaryReaderError| wrong(format!("it cannot be read: {error}"));
    let bytes = body.range().len();
    if bytes > MAX_FUNCTION_BYTES {
        return Err(wrong(format!("a function has {bytes} bytes, expected at most {MAX_FUNCTION_BYTES}")));
    }
    let mut locals = 0u32;
    for local in body.get_locals_reader().map_err(unreadable)? {
        locals = locals.saturating_add(local.map_err(unreadable)?.0);
    }
    if locals > MAX_LOCALS {
        return Err(wrong(format!("a function has {locals} local variables, expected at most {MAX_LOCALS}")));
    }
    let (mut function, mut nesting) = (FunctionShape::default(), 0u32);
    for operator in body.get_operators_reader().map_err(unreadable)? {
        let operator = operator.map_err(unreadable)?;
        function.fuel = function.fuel.saturating_add(u64::try_from(costs.cost(&operator)).unwrap_or(0));
        match operator {
            Operator::Call { function_index } => function.calls.push(function_index as usize),
            Operator::CallIndirect { .. } => function.calls_through_table = true,
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                nesting += 1;
                if nesting > MAX_NESTING {
                    return Err(wrong(format!("blocks of a function are nested more than {MAX_NESTING} deep")));
                }
            }
            Operator::End => nesting = nesting.saturating_sub(1),
            _ => {}
        }
    }
    Ok(function)
}

/// The functions that an element segment puts into tables.
fn functions_of(items: wasmparser::ElementItems<'_>) -> Result<Vec<u32>, wasmparser::BinaryReaderError> {
    match items {
        wasmparser::ElementItems::Functions(functions) => functions.into_iter().collect(),
        wasmparser::ElementItems::Expressions(_, expressions) => {
            let mut found = Vec::new();
            for expression in expressions {
                for operator in expression?.get_operators_reader() {
                    if let wasmparser::Operator::RefFunc { function_index } = operator? {
                        found.push(function_index);
                    }
                }
            }
            Ok(found)
        }
    }
}

#[derive(Clone, Copy)]
enum CallChain {
    Unknown,
    /// It is being followed.
    Open,
    /// The fuel of the functions of the longest chain that begins here.
    Known(u64),
}

/// The fuel of the longest chain of calls that begins at a function. There are no more functions than a stack of the host holds.
fn longest_chain(
    at: usize,
    functions: &[FunctionShape],
    calls: &[Vec<usize>],
    chains: &mut [CallChain],
) -> Result<u64, Error> {
    match chains[at] {
        CallChain::Known(fuel) => return Ok(fuel),
        CallChain::Open => {
            return Err(wrong("a function may call itself, through others perhaps: there is no recursion"));
        }
        CallChain::Unknown => chains[at] = CallChain::Open,
    }
    let mut behind = 0;
    for &call in &calls[at] {
        behind = longest_chain(call, functions, calls, chains)?.max(behind);
    }
    let fuel = functions[at].fuel.saturating_add(behind);
    chains[at] = CallChain::Known(fuel);
    Ok(fuel)
}
