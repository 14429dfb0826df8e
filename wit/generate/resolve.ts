import { WitError } from './lexer.ts';
import {
  camelCase,
  type Field,
  type NamedType,
  PRIMITIVES,
  type PrimitiveKind,
  pascalCase,
  type WitFunction,
  type WitInterface,
  type WitResource,
  type WitType,
  type WitWorld,
} from './model.ts';
import type {
  Declaration,
  ParsedField,
  ParsedFile,
  ParsedFunction,
  ParsedInterface,
  Place,
  TypeExpression,
} from './syntax.ts';

const PRIMITIVE_NAMES: ReadonlySet<string> = new Set(PRIMITIVES);
const isPrimitive = (name: string): name is PrimitiveKind => PRIMITIVE_NAMES.has(name);

/** Maximum number of types in the angle brackets after a name. A `tuple` takes any number. */
const MAX_ARGUMENTS = new Map([
  ['list', 1],
  ['option', 1],
  ['future', 1],
  ['borrow', 1],
  ['own', 1],
  ['result', 2],
]);

/** Joins the files of one package and resolves every name. Throws WitError at an unknown name or a cyclic type. */
export function resolve(files: readonly ParsedFile[], worldName: string): WitWorld {
  const pkg = files.find((file) => file.package)?.package;
  if (!pkg) throw new WitError('wit', 1, 1, 'no file says which package this is');
  const world = files.flatMap((file) => file.worlds).find(({ name }) => name === worldName);
  if (!world) throw new WitError('wit', 1, 1, `no world is named '${worldName}'`);
  const parsed = new Map(files.flatMap((file) => file.interfaces).map((entry) => [entry.name, entry]));
  const resolver = new Resolver(parsed);
  const imports = world.imports.map(({ name, at }) =>
    resolver.interface(find(parsed, name, at), `${pkg.name}/${name}@${pkg.version}`),
  );
  // The world exports plain functions: they belong to no interface ('') and to no resource (null).
  const exports = world.exports.map((entry) => resolver.function(entry, '', null));
  return { package: pkg.name, version: pkg.version, name: worldName, imports, exports, ...docsMember(world.docs) };
}

class Resolver {
  readonly #interfaces: ReadonlyMap<string, ParsedInterface>;
  readonly #resolved = new Map<Declaration, WitType>();
  readonly #resolving = new Set<Declaration>();

  constructor(interfaces: ReadonlyMap<string, ParsedInterface>) {
    this.#interfaces = interfaces;
  }

  interface(parsed: ParsedInterface, id: string): WitInterface {
    const types: NamedType[] = [];
    const resources: WitResource[] = [];
    for (const declaration of parsed.declarations) {
      if (declaration.kind === 'resource') {
        const functions = declaration.functions.map((entry) => this.function(entry, parsed.name, declaration.name));
        resources.push({ ...namedMembers(parsed.name, declaration), functions });
      } else if (declaration.kind !== 'alias') {
        types.push(this.#declared(declaration, parsed.name, parsed.at) as NamedType);
      }
    }
    const functions = parsed.functions.map((entry) => this.function(entry, parsed.name, null));
    return {
      name: parsed.name,
      js: camelCase(parsed.name),
      id,
      types,
      resources,
      functions,
      ...docsMember(parsed.docs),
    };
  }

  function(parsed: ParsedFunction, scope: string, resource: string | null): WitFunction {
    const constructed: WitType | null =
      parsed.kind === 'constructor' && resource !== null ? { kind: 'own', interface: scope, resource } : null;
    return {
      name: parsed.name,
      js: camelCase(parsed.name),
      kind: parsed.kind,
      resource,
      coreName: coreName(parsed, resource),
      params: parsed.params.map((param) => this.#field(param, scope)),
      result: constructed ?? (parsed.result ? this.#type(parsed.result, scope) : null),
      async: parsed.async,
      ...docsMember(parsed.docs),
    };
  }

  #field({ name, type, docs }: ParsedField, scope: string): Field {
    return { name, js: camelCase(name), type: this.#type(type, scope), ...docsMember(docs) };
  }

  #type(expression: TypeExpression, scope: string): WitType {
    const { name, at } = expression;
    if (expression.kind === 'name') {
      if (isPrimitive(name)) return { kind: name };
      if (name === 'result') return { kind: 'result', ok: null, err: null };
      if (name === 'future') return { kind: 'future', value: null };
      return this.#lookup(name, scope, at);
    }
    const { length } = expression.arguments;
    const limit = MAX_ARGUMENTS.get(name);
    if (limit !== undefined && length > limit)
      throw new WitError(
        at.file,
        at.line,
        at.column,
        `'${name}' has ${length} types in its brackets; the limit is ${limit}`,
      );
    const [first = null, second = null] = expression.arguments.map((item) => item && this.#type(item, scope));
    if (name === 'result') return { kind: 'result', ok: first, err: second };
    if (name === 'future') return { kind: 'future', value: first };
    if (!first) throw new WitError(at.file, at.line, at.column, `'${name}' needs a type`);
    if (name === 'list') return { kind: 'list', element: first };
    if (name === 'option') return { kind: 'option', value: first };
    if (name === 'tuple') {
      const items = expression.arguments.map((item) => {
        if (!item) throw new WitError(at.file, at.line, at.column, "'tuple' needs a type for each item");
        return this.#type(item, scope);
      });
      return { kind: 'tuple', items };
    }
    // The bare name of a resource resolves to `own`, so this check refuses handles of other types and handles of handles.
    const isName = expression.arguments[0]?.kind === 'name';
    if ((name === 'borrow' || name === 'own') && isName && first.kind === 'own') return { ...first, kind: name };
    throw new WitError(at.file, at.line, at.column, `'${name}' is not a type of our subset of WIT`);
  }

  /** The type of a name in the interface `scope`. @param passed interface and name of each `use` that led here */
  #lookup(name: string, scope: string, at: Place, passed: ReadonlySet<string> = new Set()): WitType {
    const parsed = this.#interfaces.get(scope);
    const declaration = parsed?.declarations.find((entry) => entry.name === name);
    if (declaration) return this.#declared(declaration, scope, at);
    const use = parsed?.uses.find((entry) => entry.as === name);
    if (!use) throw new WitError(at.file, at.line, at.column, `no type is named '${name}' here`);
    find(this.#interfaces, use.from, use.at); // Throws at the `use` when its interface does not exist.
    const key = `${scope} ${name}`;
    if (passed.has(key))
      throw new WitError(at.file, at.line, at.column, `no interface declares '${name}': the 'use's lead in a circle`);
    return this.#lookup(use.name, use.from, use.at, new Set([...passed, key]));
  }

  #declared(declaration: Declaration, scope: string, at: Place): WitType {
    const known = this.#resolved.get(declaration);
    if (known) return known;
    if (this.#resolving.has(declaration)) {
      throw new WitError(at.file, at.line, at.column, `'${declaration.name}' contains itself`);
    }
    this.#resolving.add(declaration);
    const type = this.#resolveDeclaration(declaration, scope);
    this.#resolving.delete(declaration);
    this.#resolved.set(declaration, type);
    return type;
  }

  #resolveDeclaration(declaration: Declaration, scope: string): WitType {
    switch (declaration.kind) {
      case 'record':
        return {
          kind: 'record',
          ...namedMembers(scope, declaration),
          fields: declaration.fields.map((field) => this.#field(field, scope)),
        };
      case 'variant':
        return {
          kind: 'variant',
          ...namedMembers(scope, declaration),
          cases: declaration.cases.map(({ name, type, docs }) => ({
            name,
            type: type && this.#type(type, scope),
            ...docsMember(docs),
          })),
        };
      case 'enum':
        return {
          kind: 'enum',
          ...namedMembers(scope, declaration),
          cases: declaration.cases.map(({ name, docs }) => ({ name, ...docsMember(docs) })),
        };
      case 'resource':
        // In WIT, a resource's name as a type means `own`.
        return { kind: 'own', interface: scope, resource: declaration.name };
      case 'alias':
        return this.#type(declaration.type, scope);
    }
  }
}

function coreName({ kind, name }: ParsedFunction, resource: string | null): string {
  if (kind === 'function') return name;
  return kind === 'constructor' ? `[constructor]${resource}` : `[${kind}]${resource}.${name}`;
}

function find(interfaces: ReadonlyMap<string, ParsedInterface>, name: string, at: Place): ParsedInterface {
  const found = interfaces.get(name);
  if (!found) throw new WitError(at.file, at.line, at.column, `no interface is named '${name}'`);
  return found;
}

const namedMembers = (scope: string, { name, docs }: { name: string; docs: string }) => ({
  interface: scope,
  name,
  js: pascalCase(name),
  ...docsMember(docs),
});

const docsMember = (docs: string): { docs?: string } => (docs ? { docs } : {});
