import { Reader, WasmError } from './binary.ts';

/** Section ids of a component (component model, Binary.md). */
const SECTION = { instance: 5, alias: 6, type: 7, import: 10, export: 11 } as const;
const SORT = { core: 0, function: 1, value: 2, type: 3, component: 4, instance: 5 } as const;

/** Text of a type in a component: records and variants by structure, resources by name. */
type TypeText = string;

export interface ImportedInterface {
  /** Full name, such as `pie:inferlet/queue@0.1.0`. */
  readonly name: string;
  /** Types of the functions, by WIT's name (`[method]queue.synchronize`). */
  readonly functions: ReadonlyMap<string, TypeText>;
  readonly resources: readonly string[];
}

interface ComponentImports {
  readonly interfaces: readonly ImportedInterface[];
  /** Names of imports that are not interfaces. */
  readonly others: readonly string[];
}

type Type =
  | { readonly kind: 'value'; readonly text: TypeText }
  | { readonly kind: 'function'; readonly text: TypeText }
  | { readonly kind: 'resource'; readonly text: string }
  | { readonly kind: 'instance'; readonly exports: ReadonlyMap<string, Exported> }
  | { readonly kind: 'other' };

interface Exported {
  readonly sort: number;
  readonly type: Type;
  /** True for a new resource; not set for another name of an existing one. */
  readonly fresh?: boolean;
}

/** Maximum length of a type's text; those of the contract have a few hundred characters. Each nesting of a type can double its text. */
const MAX_TYPE_TEXT = 65536;

const OTHER: Type = { kind: 'other' };

const PRIMITIVES: Readonly<Record<number, string>> = {
  127: 'bool',
  126: 's8',
  125: 'u8',
  124: 's16',
  123: 'u16',
  122: 's32',
  121: 'u32',
  120: 's64',
  119: 'u64',
  118: 'f32',
  117: 'f64',
  116: 'char',
  115: 'string',
  100: 'error-context',
};

/** Index spaces of a component, or of an instance type inside it. */
class Scope {
  readonly types: Type[] = [];
  readonly instances: Type[] = [];
  readonly parent: Scope | null;

  constructor(parent: Scope | null) {
    this.parent = parent;
  }

  type(index: number): Type {
    const type = this.types[index];
    if (!type) throw new WasmError(`no type has the index ${index}`);
    return type;
  }

  /** The scope `count` levels out. */
  outer(count: number): Scope {
    let scope: Scope = this;
    for (let left = count; left > 0; left -= 1) {
      if (!scope.parent) throw new WasmError('alias out of the component');
      scope = scope.parent;
    }
    return scope;
  }

  define(sort: number, type: Type): void {
    if (sort === SORT.type) this.types.push(type);
    else if (sort === SORT.instance) this.instances.push(type);
  }
}

/**
 * Reads the imports of a component, with the types of their functions. It skips all sections but those of types, aliases, instances,
 * imports and exports. The caller has checked the header (`wasmKind`). Throws WasmError for malformed sections, and for
 * forms that wit-component never writes.
 */
export function readComponentImports(bytes: Uint8Array): ComponentImports {
  const reader = new Reader(bytes, 8);
  const scope = new Scope(null);
  const interfaces: ImportedInterface[] = [];
  const others: string[] = [];
  while (!reader.done) {
    const id = reader.byte();
    const body = reader.slice(reader.u32());
    if (id === SECTION.type) each(body, () => scope.types.push(readType(body, scope)));
    else if (id === SECTION.alias) each(body, () => readAlias(body, scope));
    else if (id === SECTION.instance) each(body, () => readInstance(body, scope));
    else if (id === SECTION.export) each(body, () => readExport(body, scope));
    else if (id === SECTION.import) {
      each(body, () => {
        const name = readExternName(body);
        const { sort, type } = readDescription(body, scope, name);
        scope.define(sort, type);
        if (type.kind === 'instance') interfaces.push(interfaceOf(name, type.exports));
        else others.push(name);
      });
    }
  }
  return { interfaces, others };
}

function interfaceOf(name: string, exports: ReadonlyMap<string, Exported>): ImportedInterface {
  const functions = new Map<string, TypeText>();
  const resources: string[] = [];
  for (const [key, { sort, type, fresh }] of exports) {
    if (sort === SORT.function && type.kind === 'function') functions.set(key, type.text);
    else if (fresh) resources.push(key);
    else if (sort !== SORT.type) functions.set(key, 'something that is not a function');
  }
  return { name, functions, resources };
}

function each(reader: Reader, item: () => void): void {
  for (let left = reader.u32(); left > 0; left -= 1) item();
}

function readExternName(reader: Reader): string {
  const form = reader.byte();
  const name = reader.name();
  // Form 2 adds a version.
  if (form === 2) reader.name();
  else if (form > 2) throw new WasmError('import name of a newer form', reader.at);
  return name;
}

function readDescription(reader: Reader, scope: Scope, name: string): Exported {
  const sort = reader.byte();
  switch (sort) {
    case SORT.core:
      reader.byte();
      reader.u32();
      return { sort, type: OTHER };
    case SORT.function:
    case SORT.instance:
      return { sort, type: scope.type(reader.u32()) };
    case SORT.component:
      reader.u32();
      return { sort, type: OTHER };
    case SORT.type:
      // Byte 0 refers to an existing type; another byte declares a new resource.
      if (reader.byte() === 0) return { sort, type: scope.type(reader.u32()) };
      return { sort, type: { kind: 'resource', text: name }, fresh: true };
    default:
      throw new WasmError('import of a newer form', reader.at);
  }
}

function readAlias(reader: Reader, scope: Scope): void {
  const sort = reader.byte();
  if (sort === SORT.core) reader.byte();
  const target = reader.byte();
  const index = reader.u32();
  // Targets: an export of an instance (0), an export of a core instance (1), an outer component (2).
  if (target === 2) {
    const type = sort === SORT.type ? scope.outer(index).type(reader.u32()) : skipIndex(reader);
    scope.define(sort, type);
    return;
  }
  const name = reader.name();
  const instance = target === 0 ? scope.instances[index] : undefined;
  const exported = instance?.kind === 'instance' ? instance.exports.get(name) : undefined;
  scope.define(sort, exported?.type ?? OTHER);
}

function skipIndex(reader: Reader): Type {
  reader.u32();
  return OTHER;
}

/** Skips the contents of an instance that the component makes itself: its exports do not matter for imports. */
function readInstance(reader: Reader, scope: Scope): void {
  const form = reader.byte();
  // Form 0 instantiates a component with arguments; form 1 collects exports.
  if (form === 0) reader.u32();
  each(reader, () => {
    if (form === 0) reader.name();
    else readExternName(reader);
    if (reader.byte() === SORT.core) reader.byte();
    reader.u32();
  });
  scope.instances.push(OTHER);
}

function readExport(reader: Reader, scope: Scope): void {
  const name = readExternName(reader);
  const sort = reader.byte();
  if (sort === SORT.core) reader.byte();
  const index = reader.u32();
  // After a byte 1, the export declares its type.
  if (reader.byte() === 1) readDescription(reader, scope, name);
  scope.define(sort, (sort === SORT.type ? scope.types[index] : scope.instances[index]) ?? OTHER);
}

function readType(reader: Reader, scope: Scope): Type {
  const form = reader.byte();
  switch (form) {
    case 0x3f: // Resource, perhaps with a destructor
      reader.byte();
      if (reader.byte() === 1) reader.u32();
      return OTHER;
    case 0x40: // Function
    case 0x43: // Asynchronous function
      return { kind: 'function', text: readFunction(reader, scope, form === 0x43) };
    case 0x41:
      throw new WasmError('component types are not supported', reader.at);
    case 0x42:
      return readInstanceType(reader, new Scope(scope));
    default: {
      const text = readDefined(reader, scope, form);
      if (text.length > MAX_TYPE_TEXT) throw new WasmError('a type is too large', reader.at);
      return { kind: 'value', text };
    }
  }
}

function readInstanceType(reader: Reader, scope: Scope): Type {
  const exports = new Map<string, Exported>();
  each(reader, () => {
    const form = reader.byte();
    // Declarations: a type (1), an alias (2), an export (4).
    if (form === 1) scope.types.push(readType(reader, scope));
    else if (form === 2) readAlias(reader, scope);
    else if (form === 4) {
      const name = readExternName(reader);
      const exported = readDescription(reader, scope, name);
      scope.define(exported.sort, exported.type);
      exports.set(name, exported);
    } else throw new WasmError('instance type of a form that is not supported', reader.at);
  });
  return { kind: 'instance', exports };
}

function readFunction(reader: Reader, scope: Scope, isAsync: boolean): TypeText {
  const params: string[] = [];
  each(reader, () => params.push(`${reader.name()}: ${readValue(reader, scope)}`));
  const form = reader.byte();
  // Form 0 has one result, form 1 has none.
  if (form === 0) return functionText(isAsync, params, readValue(reader, scope));
  reader.byte();
  return functionText(isAsync, params, null);
}

/** A function's type as text. */
export function functionText(isAsync: boolean, params: readonly string[], result: TypeText | null): TypeText {
  return `${isAsync ? 'async ' : ''}func(${params.join(', ')})${result === null ? '' : ` -> ${result}`}`;
}

function readValue(reader: Reader, scope: Scope): TypeText {
  const code = reader.s33();
  // A primitive type is one byte, which reads as a negative number.
  if (code < 0) return primitive(code + 128, reader.at);
  const type = scope.type(code);
  if (type.kind !== 'value') throw new WasmError('a value of a type that has none', reader.at);
  return type.text;
}

function primitive(code: number, at: number): TypeText {
  const text = PRIMITIVES[code];
  if (text === undefined) throw new WasmError(`type 0x${code.toString(16)} is not supported`, at);
  return text;
}

const readOptional = (reader: Reader, scope: Scope): TypeText | null =>
  reader.byte() === 1 ? readValue(reader, scope) : null;

function readDefined(reader: Reader, scope: Scope, form: number): TypeText {
  const items: string[] = [];
  switch (form) {
    case 0x72:
      each(reader, () => items.push(`${reader.name()}: ${readValue(reader, scope)}`));
      return `record { ${items.join(', ')} }`;
    case 0x71:
      each(reader, () => {
        const name = reader.name();
        const type = readOptional(reader, scope);
        items.push(type === null ? name : `${name}(${type})`);
        // An obsolete index of a case that this case refines.
        if (reader.byte() === 1) reader.u32();
      });
      return `variant { ${items.join(', ')} }`;
    case 0x70:
      return `list<${readValue(reader, scope)}>`;
    case 0x6f:
      each(reader, () => items.push(readValue(reader, scope)));
      return `tuple<${items.join(', ')}>`;
    case 0x6d:
    case 0x6e:
      each(reader, () => items.push(reader.name()));
      return `${form === 0x6d ? 'enum' : 'flags'} { ${items.join(', ')} }`;
    case 0x6b:
      return `option<${readValue(reader, scope)}>`;
    case 0x6a: {
      const ok = readOptional(reader, scope);
      return `result<${ok ?? '_'}, ${readOptional(reader, scope) ?? '_'}>`;
    }
    case 0x69:
    case 0x68: {
      const resource = scope.type(reader.u32());
      return `${form === 0x69 ? 'own' : 'borrow'}<${resource.kind === 'resource' ? resource.text : '?'}>`;
    }
    case 0x66:
    case 0x65:
      return `${form === 0x66 ? 'stream' : 'future'}<${readOptional(reader, scope) ?? '_'}>`;
    default:
      return primitive(form, reader.at);
  }
}
