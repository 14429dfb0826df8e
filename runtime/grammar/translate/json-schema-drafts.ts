import { inside, isObject, own, type Pointer, type SchemaObject } from './json-schema-object.ts';
import { FORMATS } from './json-schema-string.ts';
import { unicodePattern, withoutLookaheads } from './regex.ts';

/** Base of the references in a schema without an id. */
const NO_BASE = 'schema:///';
/** Keywords with a schema. */
const OF_ONE: ReadonlySet<string> = new Set([
  'items',
  'additionalItems',
  'unevaluatedItems',
  'contains',
  'additionalProperties',
  'unevaluatedProperties',
  'propertyNames',
  'not',
  'if',
  'then',
  'else',
]);
/** Keywords with a list of schemas. Earlier drafts write the first items of an array in `items`. */
const OF_LISTS: ReadonlySet<string> = new Set(['prefixItems', 'items', 'allOf', 'anyOf', 'oneOf']);
/** Keywords with schemas by name. */
const OF_NAMED: ReadonlySet<string> = new Set([
  '$defs',
  'definitions',
  'properties',
  'patternProperties',
  'dependentSchemas',
  'dependencies',
]);
/** Keywords that stay beside a `$ref` in drafts where `$ref` replaces all assertions. */
const BESIDE_REFERENCE: ReadonlySet<string> = new Set(['$ref', '$schema', '$defs', 'definitions', 'x-guidance']);
/** The last draft in which `$ref` replaces the keywords beside it. */
const LAST_REPLACING_DRAFT = 7;

type Draft = number | undefined;

interface Place {
  readonly pointer: Pointer;
  readonly base: string;
}

/**
 * The schema in the form of draft 2020-12: tuples, exclusive bounds and divisors of earlier drafts are rewritten. Each reference becomes a pointer from
 * the root, so that ids and anchors are not needed. A reference that leads out of the schema stays. Formats that no grammar keeps are left out, and
 * lookaheads at the start of a pattern become patterns of their own.
 */
export function modern(root: unknown): unknown {
  return isObject(root) ? new Modernizer(root).schema() : root;
}

class Modernizer {
  readonly #root: SchemaObject;
  readonly #draft: Draft;
  /** The schemas that were found, with their places. */
  readonly #places = new Map<object, Place>();
  /** Places of schemas by their absolute ids, and by these with an anchor. */
  readonly #ids = new Map<string, Place>();
  readonly #references = new Map<SchemaObject, Pointer>();
  readonly #pending: [schema: SchemaObject, keyword: string][] = [];
  #hasDynamicScopes = false;

  constructor(root: SchemaObject) {
    this.#root = root;
    this.#draft = draftOf(root);
    this.#visit(root, { pointer: '#', base: NO_BASE });
    this.#ids.set(NO_BASE, { pointer: '#', base: NO_BASE });
    for (const [schema, keyword] of this.#pending) this.#follow(schema, keyword);
  }

  schema(): unknown {
    return this.#copy(this.#root);
  }

  /** Finds the schemas within a schema, with their ids and references. */
  #visit(schema: unknown, outer: Place): void {
    if (!isObject(schema) || this.#places.has(schema)) return;
    const place = this.#register(schema, outer);
    this.#places.set(schema, place);
    for (const [keyword, value] of Object.entries(schema)) {
      const at = inside(outer.pointer, keyword);
      const visitEach = (entries: Iterable<readonly [string | number, unknown]>): void => {
        for (const [key, each] of entries) this.#visit(each, { pointer: inside(at, key), base: place.base });
      };
      if (Array.isArray(value)) {
        if (OF_LISTS.has(keyword)) visitEach(value.entries());
      } else if (OF_ONE.has(keyword)) this.#visit(value, { pointer: at, base: place.base });
      else if (OF_NAMED.has(keyword) && isObject(value)) visitEach(Object.entries(value));
      else if (/^\$(ref|dynamicRef|recursiveRef)$/.test(keyword)) this.#pending.push([schema, keyword]);
    }
  }

  /** Notes the id and the anchors of a schema. Returns its place, with the base of the references in it. */
  #register(schema: SchemaObject, outer: Place): Place {
    const id = own(schema, this.#draft !== undefined && this.#draft <= 4 ? 'id' : '$id');
    const isReplaced =
      this.#draft !== undefined && this.#draft <= LAST_REPLACING_DRAFT && typeof own(schema, '$ref') === 'string';
    let place = outer;
    if (typeof id === 'string' && !isReplaced) {
      const url = resolved(id, outer.base);
      // In drafts 4 to 7, the fragment of an id is an anchor.
      if (url?.hash) this.#ids.set(url.href, outer);
      else if (url) {
        if (outer.pointer !== '#') this.#hasDynamicScopes = true;
        place = { pointer: outer.pointer, base: url.href };
        this.#ids.set(url.href, place);
      }
    }
    for (const keyword of ['$anchor', '$dynamicAnchor']) {
      const anchor = own(schema, keyword);
      if (typeof anchor === 'string') this.#ids.set(`${place.base}#${anchor}`, place);
    }
    return place;
  }

  #follow(schema: SchemaObject, keyword: string): void {
    const reference = own(schema, keyword);
    const base = this.#places.get(schema)?.base ?? NO_BASE;
    // A dynamic reference depends on the schemas that lead to it only if the schema has several resources.
    if (typeof reference !== 'string' || (keyword !== '$ref' && this.#hasDynamicScopes)) return;
    const target = this.#target(reference, base);
    if (!target) return;
    this.#references.set(schema, target.pointer);
    this.#visit(valueAt(this.#root, target.pointer), target);
  }

  #target(reference: string, base: string): Place | undefined {
    const url = resolved(reference, base);
    if (!url) return undefined;
    const fragment = decoded(url.hash.slice(1));
    url.hash = '';
    const resource = this.#ids.get(url.href);
    if (fragment !== '' && !fragment.startsWith('/')) return this.#ids.get(`${url.href}#${fragment}`);
    const steps = fragment.split('/').slice(1).map(unescaped);
    const within = (place: Place): Place => ({ pointer: inside(place.pointer, ...steps), base: place.base });
    const target = resource && within(resource);
    if (target && valueAt(this.#root, target.pointer) !== undefined) return target;
    // Many schemas have ids in their definitions and refer to each other from the root all the same.
    const fromRoot = within({ pointer: '#', base: NO_BASE });
    const isLocal = reference.startsWith('#');
    return isLocal && valueAt(this.#root, fromRoot.pointer) !== undefined ? fromRoot : undefined;
  }

  #copy(value: unknown): unknown {
    if (Array.isArray(value)) return value.map((each) => this.#copy(each));
    if (!isObject(value)) return value;
    const copy: Record<string, unknown> = Object.fromEntries(
      Object.entries(value).map(([key, each]) => [key, this.#copy(each)]),
    );
    if (this.#places.has(value)) this.#rewrite(copy, value);
    return copy;
  }

  #rewrite(copy: Record<string, unknown>, schema: SchemaObject): void {
    const target = this.#references.get(schema);
    if (target !== undefined) {
      delete copy.$dynamicRef;
      delete copy.$recursiveRef;
      copy.$ref = encoded(this.#modernPointer(target));
    }
    const isReplacing = this.#draft !== undefined && this.#draft <= LAST_REPLACING_DRAFT;
    if (isReplacing && typeof schema.$ref === 'string')
      for (const key of Object.keys(copy)) if (!BESIDE_REFERENCE.has(key)) delete copy[key];
    for (const key of ['$id', '$anchor', '$dynamicAnchor']) if (typeof copy[key] === 'string') delete copy[key];
    if (Array.isArray(copy.items)) {
      copy.prefixItems = copy.items;
      if (copy.additionalItems === undefined) delete copy.items;
      else copy.items = copy.additionalItems;
    }
    delete copy.additionalItems;
    for (const [exclusive, bound] of [
      ['exclusiveMinimum', 'minimum'],
      ['exclusiveMaximum', 'maximum'],
    ] as const) {
      if (typeof copy[exclusive] !== 'boolean') continue;
      if (copy[exclusive] && copy[bound] !== undefined) {
        copy[exclusive] = copy[bound];
        delete copy[bound];
      } else delete copy[exclusive];
    }
    if (typeof copy.format === 'string' && !FORMATS.has(copy.format)) delete copy.format;
    if (typeof copy.pattern === 'string') rewritePattern(copy, copy.pattern);
    if (isObject(copy.patternProperties)) {
      copy.patternProperties = Object.fromEntries(
        Object.entries(copy.patternProperties).map(([pattern, each]) => [unicodePattern(pattern), each]),
      );
    }
  }

  /** The pointer to the same part of the rewritten schema. */
  #modernPointer(pointer: Pointer): Pointer {
    let value: unknown = this.#root;
    const steps = pointer
      .split('/')
      .slice(1)
      .map(unescaped)
      .map((step) => {
        const isTuple = isObject(value) && this.#places.has(value) && Array.isArray(value.items);
        value = member(value, step);
        if (!isTuple) return step;
        return step === 'items' ? 'prefixItems' : step === 'additionalItems' ? 'items' : step;
      });
    return inside('#', ...steps);
  }
}

/** Replaces a pattern's lookaheads by patterns beside it. */
function rewritePattern(copy: Record<string, unknown>, pattern: string): void {
  const { rest, lookaheads } = withoutLookaheads(unicodePattern(pattern));
  copy.pattern = rest;
  if (lookaheads.length === 0) return;
  const conditions = lookaheads.map(({ pattern: each, mustHold }) =>
    mustHold ? { pattern: each } : { not: { type: 'string', pattern: each } },
  );
  copy.allOf = [...(Array.isArray(copy.allOf) ? copy.allOf : []), ...conditions];
}

/** The number of an early draft that a schema names. */
function draftOf(root: SchemaObject): Draft {
  const dialect = own(root, '$schema');
  const number = typeof dialect === 'string' ? /draft-0?([3-7])\b/.exec(dialect)?.[1] : undefined;
  return number === undefined ? undefined : Number(number);
}

function resolved(reference: string, base: string): URL | undefined {
  try {
    return new URL(reference, base);
  } catch {
    return undefined;
  }
}

/** The part of a schema at a pointer; undefined if there is none. */
export function valueAt(root: unknown, pointer: Pointer): unknown {
  return pointer.split('/').slice(1).map(unescaped).reduce(member, root);
}

function member(value: unknown, key: string): unknown {
  if (Array.isArray(value)) return /^\d+$/.test(key) ? value[Number(key)] : undefined;
  return isObject(value) ? own(value, key) : undefined;
}

function unescaped(step: string): string {
  return step.replaceAll('~1', '/').replaceAll('~0', '~');
}

/** A pointer as the fragment of a reference. */
function encoded(pointer: Pointer): string {
  return pointer.replaceAll('%', '%25');
}

function decoded(fragment: string): string {
  try {
    return decodeURIComponent(fragment);
  } catch {
    return fragment;
  }
}
