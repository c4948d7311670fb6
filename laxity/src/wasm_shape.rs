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

/// The fuel of each operator: more of it for those that are slow on some processor.
pub(crate) fn operator_costs() -> OperatorCost {
    let mut cost = OperatorCost::new();
    for memory in [
        &mut cost.I32Load,
        &mut cost.I64Load,
        &mut cost.F32Load,
        &mut cost.F64Load,
        &mut cost.I32Load8S,
        &mut cost.I32Load8U,
        &mut cost.I32Load16S,
        &mut cost.I32Load16U,
        &mut cost.I64Load8S,
        &mut cost.I64Load8U,
        &mut cost.I64Load16S,
        &mut cost.I64Load16U,
        &mut cost.I64Load32S,
        &mut cost.I64Load32U,
        &mut cost.I32Store,
        &mut cost.I64Store,
        &mut cost.F32Store,
        &mut cost.F64Store,
        &mut cost.I32Store8,
        &mut cost.I32Store16,
        &mut cost.I64Store8,
        &mut cost.I64Store16,
        &mut cost.I64Store32,
    ] {
        *memory = MEMORY as u8;
    }
    for division in [
        &mut cost.I32DivS,
        &mut cost.I32DivU,
        &mut cost.I32RemS,
        &mut cost.I32RemU,
        &mut cost.I64DivS,
        &mut cost.I64DivU,
        &mut cost.I64RemS,
        &mut cost.I64RemU,
    ] {
        *division = 16;
    }
    // Numbers that are not normal take a processor as long as that.
    for float in [
        &mut cost.F32Add,
        &mut cost.F32Sub,
        &mut cost.F32Mul,
        &mut cost.F32Div,
        &mut cost.F32Sqrt,
        &mut cost.F64Add,
        &mut cost.F64Sub,
        &mut cost.F64Mul,
        &mut cost.F64Div,
        &mut cost.F64Sqrt,
        &mut cost.F64PromoteF32,
        &mut cost.F32DemoteF64,
        &mut cost.F32Ceil,
        &mut cost.F32Floor,
        &mut cost.F32Trunc,
        &mut cost.F32Nearest,
        &mut cost.F64Ceil,
        &mut cost.F64Floor,
        &mut cost.F64Trunc,
        &mut cost.F64Nearest,
        &mut cost.F32Min,
        &mut cost.F32Max,
        &mut cost.F64Min,
        &mut cost.F64Max,
        &mut cost.I32TruncF32S,
        &mut cost.I32TruncF32U,
        &mut cost.I32TruncF64S,
        &mut cost.I32TruncF64U,
        &mut cost.I64TruncF32S,
        &mut cost.I64TruncF32U,
        &mut cost.I64TruncF64S,
        &mut cost.I64TruncF64U,
        &mut cost.I32TruncSatF32S,
        &mut cost.I32TruncSatF32U,
        &mut cost.I32TruncSatF64S,
        &mut cost.I32TruncSatF64U,
        &mut cost.I64TruncSatF32S,
        &mut cost.I64TruncSatF32U,
        &mut cost.I64TruncSatF64S,
        &mut cost.I64TruncSatF64U,
        &mut cost.F32ConvertI32S,
        &mut cost.F32ConvertI32U,
        &mut cost.F32ConvertI64S,
        &mut cost.F32ConvertI64U,
        &mut cost.F64ConvertI32S,
        &mut cost.F64ConvertI32U,
        &mut cost.F64ConvertI64S,
        &mut cost.F64ConvertI64U,
    ] {
        *float = 60;
    }
    for several in [
        &mut cost.I32Mul,
        &mut cost.I64Mul,
        &mut cost.I32Popcnt,
        &mut cost.I64Popcnt,
        &mut cost.I32Clz,
        &mut cost.I64Clz,
        &mut cost.I32Ctz,
        &mut cost.I64Ctz,
    ] {
        *several = 8;
    }
    // Each time around a loop, and in each function, the fuel is looked at.
    for branch in [
        &mut cost.If,
        &mut cost.Loop,
        &mut cost.Br,
        &mut cost.BrIf,
        &mut cost.BrTable,
        &mut cost.Call,
        &mut cost.CallIndirect,
    ] {
        *branch = 8;
    }
    for bulk in [
        &mut cost.MemoryCopy,
        &mut cost.MemoryFill,
        &mut cost.MemoryInit,
        &mut cost.MemoryGrow,
        &mut cost.TableCopy,
        &mut cost.TableFill,
        &mut cost.TableInit,
        &mut cost.TableGrow,
        &mut cost.DataDrop,
        &mut cost.ElemDrop,
        &mut cost.TableGet,
        &mut cost.TableSet,
        &mut cost.RefFunc,
    ] {
        *bulk = 100;
    }
    cost.variable.table_copy_per_element = 8;
    cost.variable.table_fill_per_element = 8;
    cost.variable.table_init_per_element = 50;
    cost
}

/// What is known of a module before it is compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Fuel that may be used from one look at what is left to the next. Functions look when they begin, and at the beginning of each loop, but not
    /// when a call returns: so it is what all functions of a chain of calls may use.
    pub(crate) unseen: u64,
}

/// Functions of a module at most, and what each may have.
const MAX_FUNCTIONS: usize = 1_000;
const MAX_PARAMETERS: usize = 16;
const MAX_LOCALS: u32 = 1_000;
const MAX_NESTING: u32 = 100;
const MAX_FUNCTION_BYTES: usize = 16 << 10;

/// What a function calls, and the fuel of all its operators together.
#[derive(Default)]
struct Function {
    fuel: u64,
    calls: Vec<usize>,
    calls_through_table: bool,
}

impl Shape {
    /// Of bytes that may be anything.
    ///
    /// # Errors
    /// It is no module, or larger than one may be.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, Error> {
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
                    functions.push(Self::function(&body, &costs)?);
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {
                    return Err(wrong("it is a component, expected a module"));
                }
                _ => {}
            }
        }
        let place = |function: u32| (function as usize).checked_sub(imported).filter(|place| *place < functions.len());
        let in_tables: Vec<usize> = in_tables.into_iter().filter_map(place).collect();
        let of_calls = |function: &Function| -> Vec<usize> {
            let direct = function.calls.iter().filter_map(|call| place(*call as u32));
            let through = in_tables.iter().copied().filter(|_| function.calls_through_table);
            direct.chain(through).collect()
        };
        let calls: Vec<Vec<usize>> = functions.iter().map(of_calls).collect();
        let mut chains = vec![Chain::Unknown; functions.len()];
        let mut unseen = 0;
        for function in 0..functions.len() {
            unseen = longest_chain(function, &functions, &calls, &mut chains)?.max(unseen);
        }
        Ok(Self { unseen })
    }

    fn function(body: &wasmparser::FunctionBody<'_>, costs: &OperatorCost) -> Result<Function, Error> {
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
        let (mut function, mut nesting) = (Function::default(), 0u32);
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
enum Chain {
    Unknown,
    /// It is being followed.
    Open,
    /// The fuel of the functions of the longest chain that begins here.
    Known(u64),
}

/// The fuel of the longest chain of calls that begins at a function. There are no more functions than a stack of the host holds.
fn longest_chain(at: usize, functions: &[Function], calls: &[Vec<usize>], chains: &mut [Chain]) -> Result<u64, Error> {
    match chains[at] {
        Chain::Known(fuel) => return Ok(fuel),
        Chain::Open => return Err(wrong("a function may call itself, through others perhaps: there is no recursion")),
        Chain::Unknown => chains[at] = Chain::Open,
    }
    let mut behind = 0;
    for &call in &calls[at] {
        behind = longest_chain(call, functions, calls, chains)?.max(behind);
    }
    let fuel = functions[at].fuel.saturating_add(behind);
    chains[at] = Chain::Known(fuel);
    Ok(fuel)
}
