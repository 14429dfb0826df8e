import { flatten, layoutOf, sequence, signatureOf } from '../layout.ts';
import { pascalCase, type WitFunction, type WitInterface, type WitType } from '../model.ts';
import { comment, functionName, identifier, paramTypeName, typeName } from './names.ts';

/** Bytes of an `abi::Area` (abi.rs). An area holds one result, or the arguments of a call that passes them behind one pointer. */
const AREA_BYTES = 256;

/** The Rust function for a function or method of the contract. Its body declares the import that it calls. */
export function callLines(entry: WitInterface, fn: WitFunction): string[] {
  const signature = signatureOf(fn, entry.name);
  const isMethod = fn.kind === 'method';
  const params = fn.params.map((param) => ({ name: identifier(param.name), type: param.type }));
  const names = [...(isMethod ? ['self'] : []), ...params.map(({ name }) => name)];
  const declaredParams = [
    ...(isMethod ? ['&self'] : []),
    ...params.map(({ name, type }) => `${name}: ${paramTypeName(type)}`),
  ];
  // Types of the core arguments, which have the same names in Rust. Null when the call passes its arguments behind one pointer.
  const coreTypes = signature.spilled ? null : signature.params.flatMap(flatten);
  const coreParams = [
    ...(coreTypes?.map((type, index) => `a${index}: ${type}`) ?? ['arguments: *const u8']),
    ...(signature.returnPointer ? ['result: *mut u8'] : []),
  ];
  const { result } = fn;
  const coreReturn = result && !signature.returnPointer ? ` -> ${flatten(result)[0] ?? 'i32'}` : '';
  const coreArguments = coreTypes?.map((type, index) => `arguments.${type}(${index})`) ?? ['arguments.at()'];
  const call = `call(${[...coreArguments, ...(signature.returnPointer ? ['result.at()'] : [])].join(', ')})`;
  const returnType = fn.kind === 'constructor' ? 'Self' : typeName(result);
  const needsMustUse = result !== null && fn.kind !== 'constructor' && !isMustUseType(result);
  return [
    ...comment(fn.docs),
    ...(needsMustUse ? ['#[must_use]'] : []),
    '#[inline]',
    `pub fn ${functionName(fn)}(${declaredParams.join(', ')})${result ? ` -> ${returnType}` : ''} {`,
    ...indented([
      ...importLines(entry, fn, coreParams, coreReturn),
      ...(coreArguments.length > 0 ? argumentLines(signature.params, names, signature.spilled) : []),
      ...resultLines(fn, call, signature.returnPointer),
    ]),
    '}',
    '',
  ];
}

/** True for a type that has the attribute `#[must_use]` in Rust already; a function that returns such a type does not repeat the attribute. */
const isMustUseType = (type: WitType): boolean => type.kind === 'result' || type.kind === 'future';

function importLines(entry: WitInterface, fn: WitFunction, params: readonly string[], coreReturn: string): string[] {
  const future =
    fn.result?.kind === 'future'
      ? [
          `    #[link_name = "[future-read-0]${fn.coreName}"]`,
          '    fn read(future: i32, result: *mut u8) -> i32;',
          `    #[link_name = "[future-drop-readable-0]${fn.coreName}"]`,
          '    fn forget(future: i32);',
        ]
      : [];
  return [
    `#[link(wasm_import_module = "${entry.id}")]`,
    'extern "C" {',
    `    #[link_name = "${fn.coreName}"]`,
    `    fn call(${params.join(', ')})${coreReturn};`,
    ...future,
    '}',
  ];
}

function argumentLines(types: readonly WitType[], names: readonly string[], spilled: boolean): string[] {
  if (!spilled) {
    return [
      'let mut arguments = abi::Arguments::new();',
      ...names.map((name) => `abi::Lower::flat(&${name}, &mut arguments);`),
    ];
  }
  const { offsets, layout } = sequence(types);
  return [
    'let mut kept = abi::Kept::new();',
    `let mut arguments = abi::Area::new();${checkFits(layout.size)}`,
    ...names.map(
      (name, index) => `unsafe { abi::Lower::lower(&${name}, arguments.at().add(${offsets[index]}), &mut kept) };`,
    ),
  ];
}

function resultLines({ result }: WitFunction, call: string, returnPointer: boolean): string[] {
  if (!result) return [`unsafe { ${call} }`];
  if (returnPointer) {
    return [
      `let mut result = abi::Area::new();${checkFits(layoutOf(result).size)}`,
      `unsafe { ${call} };`,
      'unsafe { abi::Lift::lift(result.at()) }',
    ];
  }
  switch (result.kind) {
    case 'future':
      return [
        `unsafe { abi::Pending::new(${call}, read, forget) }${checkFits(result.value ? layoutOf(result.value).size : 0)}`,
      ];
    case 'own':
      return [`unsafe { ${typeName(result)}::from_handle(${call}) }`];
    case 'bool':
      return [`unsafe { ${call} != 0 }`];
    case 'u8':
    case 'u16':
    case 'u32':
    case 'u64':
    case 's8':
    case 's16':
    case 's32':
    case 's64':
      return [`unsafe { ${call} as ${typeName(result)} }`];
    case 'f32':
    case 'f64':
      return [`unsafe { ${call} }`];
    default:
      throw new TypeError(`the contract returns no ${result.kind} in a register`);
  }
}

/** Throws when a value of this size does not fit in an `abi::Area`. Returns an empty text, so that a template of generated code can call this. */
function checkFits(bytes: number): '' {
  if (bytes <= AREA_BYTES) return '';
  throw new TypeError(`a value of ${bytes} bytes needs a larger abi::Area`);
}

/** The Rust type of a resource of the contract. The type holds a handle, and drops the resource when the value goes out of scope. */
export function resourceLines(
  entry: WitInterface,
  name: string,
  docs: string | undefined,
  functions: readonly WitFunction[],
): string[] {
  const type = pascalCase(name);
  return [
    ...comment(docs),
    '#[derive(Debug)]',
    `pub struct ${type}(i32);`,
    '',
    `impl ${type} {`,
    ...indented([
      ...functions.flatMap((fn) => callLines(entry, fn)),
      'pub(crate) fn from_handle(handle: i32) -> Self {',
      '    Self(handle)',
      '}',
    ]),
    '}',
    '',
    `impl Drop for ${type} {`,
    '    #[inline]',
    '    fn drop(&mut self) {',
    ...indented(
      [
        `#[link(wasm_import_module = "${entry.id}")]`,
        'extern "C" {',
        `    #[link_name = "[resource-drop]${name}"]`,
        '    fn drop_resource(handle: i32);',
        '}',
        'unsafe { drop_resource(self.0) }',
      ],
      2,
    ),
    '    }',
    '}',
    '',
    `impl abi::Shape for ${type} { const SIZE: usize = 4; const ALIGN: usize = 4; const FLAT: usize = 1; }`,
    '',
    `impl abi::Lift for ${type} {`,
    '    #[inline]',
    '    unsafe fn lift(at: *const u8) -> Self {',
    '        Self(abi::Lift::lift(at))',
    '    }',
    '}',
    '',
    `impl abi::Lower for ${type} {`,
    '    #[inline]',
    '    unsafe fn lower(&self, at: *mut u8, _: &mut abi::Kept) {',
    '        *(at as *mut i32) = self.0;',
    '    }',
    '    #[inline]',
    '    fn flat(&self, to: &mut abi::Arguments) {',
    '        to.push(self.0 as u32 as u64);',
    '    }',
    '}',
    '',
  ];
}

export const indented = (lines: readonly string[], levels = 1): string[] =>
  lines.map((line) => (line === '' ? '' : `${'    '.repeat(levels)}${line}`));
