import {
  type NamedType,
  pascalCase,
  type VariantType,
  type WitFunction,
  type WitInterface,
  type WitType,
  type WitWorld,
} from './model.ts';
import { documentation, HEADER, reserved } from './names.ts';

const PRELUDE = `
/** A WIT \`result\`. On the host it is returned, never thrown. */
export type Outcome<T, E> = { readonly tag: 'ok'; readonly val: T } | { readonly tag: 'err'; readonly val: E };
`;

const TYPED_ARRAYS: Readonly<Record<string, string>> = {
  u8: 'Uint8Array',
  s8: 'Int8Array',
  u16: 'Uint16Array',
  s16: 'Int16Array',
  u32: 'Uint32Array',
  s32: 'Int32Array',
  u64: 'BigUint64Array',
  s64: 'BigInt64Array',
  f32: 'Float32Array',
  f64: 'Float64Array',
};

/** TypeScript names of the declared types. */
export type TypeNames = ReadonlyMap<NamedType, string>;

/**
 * The text of `host.ts`: the functions that the host implements, with one TypeScript interface for each WIT interface, the declared types, and the
 * lists of the cases of enums and variants.
 */
export function emitHost(world: WitWorld): string {
  const lines = [HEADER, PRELUDE.trim(), ''];
  const names = hostNames(world);
  for (const entry of world.imports) {
    for (const type of entry.types) lines.push(...declaration(type, names), ...caseList(type, names), '');
    for (const resource of entry.resources) {
      lines.push(...documentation(resource.docs));
      lines.push(`export interface ${resource.js} extends Partial<Disposable> {`);
      for (const item of resource.functions) {
        if (item.kind === 'method') lines.push(...method(item, names).map((line) => `  ${line}`));
      }
      lines.push('}', '');
    }
  }
  for (const entry of world.imports) lines.push(...hostInterface(entry, names), '');
  lines.push('/** Everything that an inferlet may import, by interface. */', 'export interface Host {');
  for (const entry of world.imports) {
    if (callable(entry)) lines.push(`  readonly ${entry.js}: ${pascalCase(entry.name)}Host;`);
  }
  lines.push('}', '');
  return lines.join('\n');
}

const callable = (entry: WitInterface): boolean => entry.functions.length + entry.resources.length > 0;

/** TypeScript name of every declared type. A name that is ambiguous or hides a global gets a prefix: its interface's name (`Handler` for `types`). */
export function hostNames(world: WitWorld): TypeNames {
  const types = world.imports.flatMap((entry) => entry.types);
  const taken = new Set(world.imports.flatMap((entry) => entry.resources.map((resource) => resource.js)));
  return new Map(
    types.map((type) => {
      const ambiguous =
        taken.has(type.js) || reserved.has(type.js) || types.some((other) => other !== type && other.js === type.js);
      return [
        type,
        ambiguous ? `${type.interface === 'types' ? 'Handler' : pascalCase(type.interface)}${type.js}` : type.js,
      ];
    }),
  );
}

/** A type as TypeScript. */
export function typeText(type: WitType | null, names: TypeNames): string {
  if (!type) return 'undefined';
  switch (type.kind) {
    case 'bool':
      return 'boolean';
    case 'char':
    case 'string':
      return 'string';
    case 'u64':
    case 's64':
      return 'bigint';
    case 'list':
      return TYPED_ARRAYS[type.element.kind] ?? `readonly ${wrap(typeText(type.element, names))}[]`;
    case 'option':
      return `${typeText(type.value, names)} | undefined`;
    case 'tuple':
      return `readonly [${type.items.map((item) => typeText(item, names)).join(', ')}]`;
    case 'result':
      return `Outcome<${typeText(type.ok, names)}, ${typeText(type.err, names)}>`;
    case 'future':
      return `Promise<${typeText(type.value, names)}>`;
    case 'own':
    case 'borrow':
      return pascalCase(type.resource);
    case 'record':
    case 'variant':
    case 'enum':
      return names.get(type) ?? type.js;
    default:
      return 'number';
  }
}

const wrap = (text: string): string => (text.includes(' ') ? `(${text})` : text);

export function declaration(type: NamedType, names: TypeNames): string[] {
  const head = documentation(type.docs);
  const name = names.get(type) ?? type.js;
  switch (type.kind) {
    case 'record':
      return [
        ...head,
        `export interface ${name} {`,
        ...type.fields.flatMap((field) => [
          ...documentation(field.docs, '  '),
          `  readonly ${field.js}${field.type.kind === 'option' ? '?' : ''}: ${typeText(field.type, names)};`,
        ]),
        '}',
      ];
    case 'variant':
      return [...head, ...variantLines(type, name, names)];
    case 'enum':
      return [...head, `export type ${name} = ${type.cases.map((entry) => `'${entry.name}'`).join(' | ')};`];
  }
}

/**
 * The list of the cases of an enum or variant, such as `TIER_CASES`, in the order of the `.wit` file. The GPU protocol sends a case as its
 * index in this list. The order cannot change, because a type of the contract never changes (`test/compat`).
 */
function caseList(type: NamedType, names: TypeNames): string[] {
  if (type.kind === 'record') return [];
  const name = (names.get(type) ?? type.js).replace(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase();
  return [`export const ${name}_CASES = [${type.cases.map((entry) => `'${entry.name}'`).join(', ')}] as const;`];
}

/** A variant whose cases all carry the same type becomes one interface with a union as its tag, so that code may compute the tag at run time. */
function variantLines(type: VariantType, name: string, names: TypeNames): string[] {
  const values = new Set(type.cases.map((entry) => (entry.type ? typeText(entry.type, names) : '')));
  const [only = ''] = values;
  if (values.size === 1 && only) {
    return [`export interface ${name} {`, `  readonly tag: ${tags(type)};`, `  readonly val: ${only};`, '}'];
  }
  const cases = type.cases.map(
    (entry) =>
      `  | { readonly tag: '${entry.name}'${entry.type ? `; readonly val: ${typeText(entry.type, names)}` : ''} }`,
  );
  return [`export type ${name} =`, `${cases.join('\n')};`];
}

const tags = (type: VariantType): string => type.cases.map((entry) => `'${entry.name}'`).join(' | ');

const parameters = (item: WitFunction, names: TypeNames): string =>
  item.params.map((param) => `${param.js}: ${typeText(param.type, names)}`).join(', ');

function method(item: WitFunction, names: TypeNames): string[] {
  const result = item.result ? typeText(item.result, names) : 'void';
  return [...documentation(item.docs), `${item.js}(${parameters(item, names)}): ${result};`];
}

function hostInterface(entry: WitInterface, names: TypeNames): string[] {
  if (!callable(entry)) return [];
  const lines = [...documentation(entry.docs), `export interface ${pascalCase(entry.name)}Host {`];
  for (const resource of entry.resources) {
    const create = resource.functions.find((item) => item.kind === 'constructor');
    lines.push(...documentation(create?.docs, '  '));
    lines.push(`  readonly ${resource.js}: new (${create ? parameters(create, names) : ''}) => ${resource.js};`);
  }
  for (const item of entry.functions) lines.push(...method(item, names).map((line) => `  ${line}`));
  return [...lines, '}'];
}
