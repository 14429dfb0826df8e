import { type CoreType, flatten, joinCases, type Signature, signatureOf } from '../layout.ts';
import type { Field, WitFunction, WitInterface, WitType } from '../model.ts';
import { constantName, functionName, identifier, typeName } from './names.ts';
import { comment, commonPayload } from './types.ts';

const CORE: Readonly<Record<CoreType, string>> = { i32: 'int32_t', i64: 'int64_t', f32: 'float', f64: 'double' };

/** The import of one function, and the inline function that lowers its arguments. */
export function callLines(entry: WitInterface, fn: WitFunction): string[] {
  const name = functionName(entry, fn);
  const raw = name.replace(/^pie_/, 'pie_raw_');
  const signature = signatureOf(fn, entry.name);
  const params = paramsOf(fn, entry.name);
  const flat = signature.spilled ? ['const void *'] : signature.params.flatMap(flatten).map((type) => CORE[type]);
  if (signature.returnPointer) flat.push('void *');
  const returnType = fn.result && !signature.returnPointer ? CORE[flatten(fn.result)[0] ?? 'i32'] : 'void';
  const lines = [
    `PIE_IMPORT("${entry.id}", "${fn.coreName}") ${returnType} ${raw}(${flat.join(', ') || 'void'});`,
    ...futureLines(entry, fn, name, raw),
    ...comment(fn.docs),
    `static inline ${resultName(fn, name)} ${name}(${params.map(({ declaration }) => declaration).join(', ') || 'void'}) {`,
    ...bodyLines(fn, name, raw, signature, params).map((line) => `  ${line}`),
    '}',
  ];
  return [...lines, ''];
}

/** The import that gives a resource's handle back. */
export function dropLines(entry: WitInterface, resource: string, type: string): string[] {
  const raw = type.replace(/^pie_/, 'pie_raw_');
  return [
    `PIE_IMPORT("${entry.id}", "[resource-drop]${resource}") void ${raw}_drop(int32_t);`,
    `static inline void ${type}_drop(${type} self) { ${raw}_drop(self.handle); }`,
    '',
  ];
}

/** A parameter in C: how it is declared, and the expression of its value. */
interface Param {
  readonly type: WitType;
  readonly name: string;
  readonly declaration: string;
  /** The parameter's value; for an option, the value that the pointer refers to. */
  readonly value: string;
}

function paramsOf(fn: WitFunction, interfaceName: string): Param[] {
  const self: Field[] =
    fn.kind === 'method' && fn.resource !== null
      ? [{ name: 'self', js: 'self', type: { kind: 'borrow', interface: interfaceName, resource: fn.resource } }]
      : [];
  return [...self, ...fn.params].map(({ name: witName, type }) => {
    const name = identifier(witName);
    if (type.kind === 'option')
      return { type, name, declaration: `const ${typeName(type.value)} *${name}`, value: `(*${name})` };
    if (type.kind === 'record')
      return { type, name, declaration: `const ${typeName(type)} *${name}`, value: `(*${name})` };
    return { type, name, declaration: `${typeName(type)} ${name}`, value: name };
  });
}

/** Type that a function returns. Each function has its own type of future, which only its own `_wait` accepts. */
function resultName(fn: WitFunction, name: string): string {
  if (!fn.result) return 'void';
  return fn.result.kind === 'future' ? `${name}_future` : typeName(fn.result);
}

function futureLines(entry: WitInterface, fn: WitFunction, name: string, raw: string): string[] {
  if (fn.result?.kind !== 'future' || !fn.result.value) return [];
  const value = typeName(fn.result.value);
  return [
    `PIE_IMPORT("${entry.id}", "[future-read-0]${fn.coreName}") int32_t ${raw}_read(int32_t, void *);`,
    `PIE_IMPORT("${entry.id}", "[future-drop-readable-0]${fn.coreName}") void ${raw}_forget(int32_t);`,
    `typedef struct { int32_t handle; } ${name}_future;`,
    `static inline ${value} ${name}_wait(${name}_future future) {`,
    `  ${value} result;`,
    `  ${raw}_read(future.handle, &result);`,
    `  ${raw}_forget(future.handle);`,
    '  return result;',
    '}',
    `static inline void ${name}_forget(${name}_future future) { ${raw}_forget(future.handle); }`,
  ];
}

function bodyLines(
  fn: WitFunction,
  name: string,
  raw: string,
  signature: Signature,
  params: readonly Param[],
): string[] {
  const lines: string[] = [];
  let values: string[];
  if (signature.spilled) {
    lines.push(
      `struct { ${params.map((param) => `${typeName(param.type)} ${param.name};`).join(' ')} } arguments = {0};`,
    );
    for (const { type, name: param, value } of params) {
      if (type.kind === 'option')
        lines.push(`if (${param}) arguments.${param}.some = true, arguments.${param}.value = *${param};`);
      else lines.push(`arguments.${param} = ${value};`);
    }
    values = ['&arguments'];
  } else values = params.flatMap(flatParam);
  const { result } = fn;
  if (signature.returnPointer && result) {
    return [...lines, `${typeName(result)} result;`, `${raw}(${[...values, '&result'].join(', ')});`, 'return result;'];
  }
  const call = `${raw}(${values.join(', ')})`;
  if (!result) return [...lines, `${call};`];
  if (result.kind === 'future') return [...lines, `return (${name}_future){${call}};`];
  if (result.kind === 'own') return [...lines, `return (${typeName(result)}){${call}};`];
  return [...lines, `return (${typeName(result)})${call};`];
}

function flatParam({ type, name, value }: Param): string[] {
  if (type.kind !== 'option') return flatValue(type, value);
  return [`${name} != 0`, ...flatValue(type.value, value).map((item) => `${name} ? ${item} : 0`)];
}

/** The core values of a C expression (Component Model, Canonical ABI, "Flattening"). */
function flatValue(type: WitType, value: string): string[] {
  switch (type.kind) {
    case 'string':
    case 'list':
      return [`(int32_t)${value}.data`, `(int32_t)${value}.length`];
    case 'own':
    case 'borrow':
      return [`${value}.handle`];
    case 'record':
      return type.fields.flatMap((field) => flatValue(field.type, `${value}.${identifier(field.name)}`));
    case 'tuple':
      return type.items.flatMap((item, index) => flatValue(item, `${value}.item${index}`));
    case 'option':
      return [`${value}.some`, ...flatValue(type.value, `${value}.value`).map((item) => `${value}.some ? ${item} : 0`)];
    case 'variant': {
      const common = commonPayload(type);
      const cases = type.cases.flatMap((entry) => {
        if (!entry.type) return [];
        const at = common ? `${value}.value` : `${value}.${identifier(entry.name)}`;
        return [{ tag: constantName(type, entry.name), types: flatten(entry.type), values: flatValue(entry.type, at) }];
      });
      // The cases share slots of core values. Each slot gets one C expression: `v.tag == A ? a : v.tag == B ? b : 0`.
      const slots = joinCases(type.cases.map((entry) => entry.type));
      return [
        `${value}.tag`,
        ...slots.map((slot, index) =>
          cases.reduceRight((rest, { tag, types, values }) => {
            const item = values[index];
            return item === undefined
              ? rest
              : `${value}.tag == ${tag} ? ${coerce(item, types[index] ?? slot, slot)} : ${rest}`;
          }, '0'),
        ),
      ];
    }
    case 'result':
    case 'future':
      throw new TypeError(`the contract takes no ${type.kind} from an inferlet`);
    default:
      return [value];
  }
}

/** Converts an expression of one core type for a slot of another: the cases of a variant share slots. */
function coerce(value: string, have: CoreType, want: CoreType): string {
  if (have === want) return value;
  if (have === 'i32') return `(int64_t)(uint32_t)(${value})`;
  throw new TypeError(`a variant puts ${have} into a slot of ${want}, for which the C header has no conversion`);
}
