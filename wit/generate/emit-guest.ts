import {
  type NamedType,
  parts,
  pascalCase,
  type WitFunction,
  type WitInterface,
  type WitType,
  type WitWorld,
} from './model.ts';
import { documentation, HEADER, isSharedError } from './names.ts';

/** Direction of a value: `in` to the guest (results), `out` of it (arguments). */
type Direction = 'in' | 'out';

const TYPED_ARRAYS: Readonly<Record<string, string>> = {
  s8: 'Int8Array',
  u16: 'Uint16Array',
  s16: 'Int16Array',
  u32: 'Uint32Array',
  s32: 'Int32Array',
  f32: 'Float32Array',
  f64: 'Float64Array',
};

const NUMBERS: ReadonlySet<string> = new Set([...Object.keys(TYPED_ARRAYS), 'u64', 's64']);

const SHARED_TYPES = `
  /** A WIT \`result\` inside a future. (When a function returns a result at once, its error is thrown instead: see Thrown.) */
  export type Outcome<T, E = Error> = { readonly tag: 'ok'; readonly val: T } | { readonly tag: 'err'; readonly val: E };
  /** A value that the host is still computing. Await \`read()\`; several at once overlap (\`Promise.all\`). */
  export interface Future<T> extends Disposable {
    read(): Promise<T>;
    /** Cancels a waiting \`read()\`: its promise is rejected with a string, and the future can be dropped. Throws when no read waits. */
    cancelRead(): void;
    drop(): void;
  }
  /** The exception of a function whose WIT result is an error. */
  export interface Thrown<E = Error> extends globalThis.Error {
    readonly payload: E;
  }
  /** A resource of the host; using it after it was dropped throws TypeError. */
  export interface Handle extends Disposable {
    drop(): void;
  }`;

/**
 * The text of `guest.d.ts`: the modules that componentize-qjs gives a JavaScript inferlet. A list of numbers goes out as an array or as the typed
 * array of the list's type (a typed array of another type traps), and comes in as an array. Bytes come in as Uint8Array, and a missing option as
 * null. A value of a wrong type (a string for a number, an unknown enum case, a lone surrogate) traps instead of throwing.
 */
export function emitGuest(world: WitWorld): string {
  const uses = directions(world);
  const lines = [
    HEADER,
    '// Types and values as componentize-qjs gives them to a guest: see wit/generate/emit-guest.ts.',
    '',
  ];
  for (const entry of world.imports) {
    lines.push(...documentation(entry.docs), `declare module '${entry.id}' {`);
    lines.push(...importsOf(entry, uses));
    if (entry.name === 'types')
      lines.push(
        ...SHARED_TYPES.trim()
          .split('\n')
          .map((line, index) => (index === 0 ? `  ${line}` : line)),
      );
    for (const type of entry.types) lines.push(...declarations(type, uses).map((line) => `  ${line}`));
    for (const resource of entry.resources) {
      lines.push(...documentation(resource.docs, '  '), `  export class ${resource.js} implements Handle {`);
      for (const item of resource.functions) lines.push(...functionLines(item, '', uses).map((line) => `    ${line}`));
      lines.push('    drop(): void;', '    [Symbol.dispose](): void;', '  }');
    }
    for (const item of entry.functions)
      lines.push(...functionLines(item, 'export function ', uses).map((line) => `  ${line}`));
    lines.push('  export {};', '}', '');
  }
  return lines.join('\n');
}

type Uses = ReadonlyMap<NamedType, ReadonlySet<Direction>>;

/** Directions in which values of each declared type pass between host and guest. */
function directions(world: WitWorld): Uses {
  const uses = new Map<NamedType, Set<Direction>>();
  const visit = (type: WitType | null, direction: Direction): void => {
    if (!type) return;
    if ('name' in type) {
      const seen = uses.get(type) ?? new Set();
      uses.set(type, seen.add(direction));
    }
    for (const part of parts(type)) visit(part, direction);
  };
  for (const entry of world.imports) {
    for (const item of [...entry.functions, ...entry.resources.flatMap((resource) => resource.functions)]) {
      for (const param of item.params) visit(param.type, 'out');
      visit(item.result, 'in');
    }
  }
  return uses;
}

/** True if the TypeScript type of a value differs between the two directions. */
function isDirected(type: WitType | null): boolean {
  if (!type) return false;
  if (type.kind === 'list')
    return type.element.kind === 'u8' || NUMBERS.has(type.element.kind) || isDirected(type.element);
  return type.kind === 'option' || parts(type).some(isDirected);
}

/** Name of a declared type in one direction: `MessageInput` beside `Message` when the guest both sends and receives it. */
function nameOf(type: NamedType, direction: Direction, uses: Uses): string {
  const needsTwoNames = uses.get(type)?.size === 2 && isDirected(type);
  return needsTwoNames && direction === 'out' ? `${type.js}Input` : type.js;
}

function typeText(type: WitType | null, direction: Direction, uses: Uses): string {
  if (!type) return 'undefined';
  switch (type.kind) {
    case 'bool':
      return 'boolean';
    case 'char':
    case 'string':
      return 'string';
    case 'list':
      return listText(type.element, direction, uses);
    case 'option':
      return `${typeText(type.value, direction, uses)} | ${direction === 'in' ? 'null' : 'null | undefined'}`;
    case 'tuple':
      return `readonly [${type.items.map((item) => typeText(item, direction, uses)).join(', ')}]`;
    case 'result':
      return `Outcome<${typeText(type.ok, direction, uses)}${isSharedError(type.err) ? '' : `, ${typeText(type.err, direction, uses)}`}>`;
    case 'future':
      return `Future<${typeText(type.value, direction, uses)}>`;
    case 'own':
    case 'borrow':
      return pascalCase(type.resource);
    case 'record':
    case 'variant':
    case 'enum':
      return nameOf(type, direction, uses);
    default:
      return 'number';
  }
}

function listText(element: WitType, direction: Direction, uses: Uses): string {
  if (element.kind === 'u8') return direction === 'in' ? 'Uint8Array' : 'Uint8Array | readonly number[]';
  if (NUMBERS.has(element.kind)) {
    if (direction === 'in') return 'number[]';
    const array = TYPED_ARRAYS[element.kind];
    return array ? `${array} | readonly number[]` : 'readonly number[]';
  }
  const text = typeText(element, direction, uses);
  return `${direction === 'out' ? 'readonly ' : ''}${text.includes(' ') ? `(${text})` : text}[]`;
}

function declarations(type: NamedType, uses: Uses): string[] {
  const usedDirections = [...(uses.get(type) ?? (['in'] as const))];
  const directionByName = new Map(usedDirections.map((direction) => [nameOf(type, direction, uses), direction]));
  return [...directionByName].flatMap(([name, direction]) => declaration(type, name, direction, uses));
}

function declaration(type: NamedType, name: string, direction: Direction, uses: Uses): string[] {
  const head = documentation(type.docs);
  switch (type.kind) {
    case 'record':
      return [
        ...head,
        `export interface ${name} {`,
        ...type.fields.flatMap((field) => [
          ...documentation(field.docs, '  '),
          `  readonly ${field.js}${direction === 'out' && field.type.kind === 'option' ? '?' : ''}: ${typeText(field.type, direction, uses)};`,
        ]),
        '}',
      ];
    case 'variant': {
      const cases = type.cases.flatMap((entry, index) => [
        ...documentation(entry.docs, '  '),
        `  | { readonly tag: '${entry.name}'${entry.type ? `; readonly val: ${typeText(entry.type, direction, uses)}` : ''} }${index === type.cases.length - 1 ? ';' : ''}`,
      ]);
      return [...head, `export type ${name} =`, ...cases];
    }
    case 'enum':
      return [...head, `export type ${name} = ${type.cases.map((entry) => `'${entry.name}'`).join(' | ')};`];
  }
}

function functionLines(item: WitFunction, prefix: string, uses: Uses): string[] {
  const lastRequired = item.params.findLastIndex((param) => param.type.kind !== 'option');
  const params = item.params
    .map((param, index) => `${param.js}${index > lastRequired ? '?' : ''}: ${typeText(param.type, 'out', uses)}`)
    .join(', ');
  // A `result` that is not in a future arrives as a value or is thrown.
  const throwingResult = item.result?.kind === 'result' ? item.result : null;
  const result = throwingResult ? throwingResult.ok : item.result;
  const docs = [item.docs, throwingResult ? `@throws {Thrown} with the error as \`payload\`` : '']
    .filter(Boolean)
    .join('\n');
  const signature =
    item.kind === 'constructor'
      ? `constructor(${params});`
      : `${item.kind === 'static' ? 'static ' : ''}${prefix}${item.js}(${params}): ${result ? typeText(result, 'in', uses) : 'void'};`;
  return [...documentation(docs), signature];
}

/** `import type` lines for the types of other interfaces that an interface uses. */
function importsOf(entry: WitInterface, uses: Uses): string[] {
  const needed = new Map<string, Set<string>>();
  const need = (from: string, name: string) => {
    if (from !== entry.name) needed.set(from, (needed.get(from) ?? new Set()).add(name));
  };
  const visit = (type: WitType | null, direction: Direction): void => {
    if (!type) return;
    if (type.kind === 'future') need('types', 'Future');
    if (type.kind === 'result') need('types', 'Outcome');
    if (type.kind === 'own' || type.kind === 'borrow') need(type.interface, pascalCase(type.resource));
    if ('name' in type) {
      if (type.interface !== entry.name) {
        // `types.error` is the default error type of `Outcome` and `Thrown`, so the module does not name it.
        if (!isSharedError(type)) need(type.interface, nameOf(type, direction, uses));
        return;
      }
    }
    for (const part of parts(type)) visit(part, direction);
  };
  if (entry.resources.length > 0) need('types', 'Handle');
  for (const type of entry.types) for (const direction of uses.get(type) ?? []) visit(type, direction);
  for (const item of [...entry.functions, ...entry.resources.flatMap((resource) => resource.functions)]) {
    for (const param of item.params) visit(param.type, 'out');
    visit(item.result?.kind === 'result' ? item.result.ok : item.result, 'in');
  }
  const version = entry.id.slice(entry.id.lastIndexOf('@'));
  const base = entry.id.slice(0, entry.id.lastIndexOf('/') + 1);
  return [...needed].map(
    ([from, names]) => `  import type { ${[...names].sort().join(', ')} } from '${base}${from}${version}';`,
  );
}
