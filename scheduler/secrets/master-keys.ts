import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createSecretKey,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import { link, mkdir, open, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { FunctionVersion } from '../functions/types.ts';
import type { Store } from '../store/store.ts';

const KEY_BYTES = 32;
const ID_LENGTH = 8;
/** Environment variable that takes precedence over the file. */
const VARIABLE = 'PIE_MASTER_KEY';
const FILE = 'master.key';

/** A key that seals secrets. */
export interface MasterKey {
  /** The first digits of the sha256 of the key, so that different keys have different ids. */
  readonly id: string;
  readonly key: KeyObject;
}

/** The installation's master keys: the first one seals, all of them open. */
export interface MasterKeys {
  /**
   * The sealing key. When there is no key, creates one if `create` is set and no stored value is sealed yet; otherwise
   * throws.
   */
  first(): Promise<MasterKey>;
  /** All keys, the sealing one first. */
  all(): Promise<readonly MasterKey[]>;
  /** The key with this id; null when there is none. */
  byId(id: string): Promise<MasterKey | null>;
}

export interface MasterKeysOptions {
  /** True when a missing file may be created. */
  readonly create: boolean;
  /** The id of a key under which a value is sealed, or null. Asked before a key is created, since a new key could not open that value. */
  readonly sealedUnder?: () => Promise<string | null>;
  readonly environment?: NodeJS.ProcessEnv;
}

/**
 * The keys of an installation: `PIE_MASTER_KEY`, else `master.key` in its home, each a list of keys of 32 bytes in base64, separated by
 * white space or commas. To rotate, put a new key (`openssl rand -base64 32`) before the others. The variable is deleted from the
 * environment, so that child processes do not inherit it. The next gateway to start seals everything anew; then the old keys may go.
 *
 * The first start creates a missing file, but never while Redis holds sealed values: the gateway then refuses to start, and explains the remedy. Backups do
 * not contain the key.
 *
 * @throws when the variable holds anything else. Faults of the file are found later, when a key is first needed.
 */
export function openMasterKeys(home: string, options: MasterKeysOptions): MasterKeys {
  const { environment = process.env } = options;
  const variableText = environment[VARIABLE];
  delete environment[VARIABLE];
  return variableText === undefined || variableText.trim() === ''
    ? new KeyFile(path.join(home, FILE), options)
    : new FixedKeys(parseKeys(variableText, VARIABLE));
}

/** The text of `master.key`, or of the variable. */
export function masterKeyText(keys: readonly MasterKey[]): string {
  return keys.map(({ key }) => `${key.export().toString('base64')}\n`).join('');
}

class FixedKeys implements MasterKeys {
  readonly #keys: readonly MasterKey[];

  constructor(keys: readonly MasterKey[]) {
    this.#keys = keys;
  }

  async first(): Promise<MasterKey> {
    return firstOf(this.#keys, VARIABLE);
  }

  async all(): Promise<readonly MasterKey[]> {
    return this.#keys;
  }

  async byId(id: string): Promise<MasterKey | null> {
    return this.#keys.find((key) => key.id === id) ?? null;
  }
}

/**
 * Keys in `master.key`. The file is read again for every sealing and for every unknown id, so that a rotation needs no restart.
 */
class KeyFile implements MasterKeys {
  readonly #file: string;
  readonly #options: MasterKeysOptions;
  #keys: readonly MasterKey[] = [];

  constructor(file: string, options: MasterKeysOptions) {
    this.#file = file;
    this.#options = options;
  }

  async first(): Promise<MasterKey> {
    if (!(await this.#read())) {
      const { create, sealedUnder } = this.#options;
      if (!create) throw new Error(`There is no ${this.#file} (nor ${VARIABLE}).`);
      const id = (await sealedUnder?.()) ?? null;
      if (id !== null) throw new Error(lostKey(this.#file, id));
      await writeOnce(this.#file, `${randomBytes(KEY_BYTES).toString('base64')}\n`);
      await this.#read();
    }
    return firstOf(this.#keys, this.#file);
  }

  async all(): Promise<readonly MasterKey[]> {
    await this.first();
    return this.#keys;
  }

  async byId(id: string): Promise<MasterKey | null> {
    const find = () => this.#keys.find((key) => key.id === id) ?? null;
    const known = find();
    if (known !== null) return known;
    return (await this.#read()) ? find() : null;
  }

  /** False when there is no file. */
  async #read(): Promise<boolean> {
    try {
      this.#keys = parseKeys(await readFile(this.#file, 'utf8'), this.#file);
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
      throw error;
    }
  }
}

function parseKeys(text: string, source: string): MasterKey[] {
  const words = text.split(/[\s,]+/).filter((word) => word !== '');
  return words.map((word, i) => {
    // `Buffer.from` skips wrong characters, so the bytes must give the same text again; padding does not matter.
    const bytes = Buffer.from(word, 'base64');
    if (bytes.length !== KEY_BYTES || bytes.toString('base64').replace(/=+$/, '') !== word.replace(/=+$/, '')) {
      throw new Error(`Key ${i + 1} in ${source} is not ${KEY_BYTES} bytes in base64.`);
    }
    const id = createHash('sha256').update(bytes).digest('hex').slice(0, ID_LENGTH);
    return { id, key: createSecretKey(bytes) };
  });
}

function firstOf(keys: readonly MasterKey[], source: string): MasterKey {
  const [first] = keys;
  if (first === undefined) throw new Error(`There is no key in ${source}.`);
  return first;
}

function lostKey(file: string, id: string): string {
  return (
    `There is no ${file} (nor ${VARIABLE}), but Redis holds secrets that are sealed under the master key ${id}; a new key could not open them. ` +
    `Put the file back, from a backup or from another machine of this installation, or give the key in ${VARIABLE}. If it is lost, make a new one by hand ` +
    `(openssl rand -base64 32 > ${file}; chmod 600 ${file}), then set every secret anew (pie secrets set), deploy the functions again that have an environment (pie deploy), and rotate the secrets of webhooks (pie webhooks secret --rotate).`
  );
}

/** Writes a file with mode 0600, atomically. A file that another process has written meanwhile stays. */
async function writeOnce(file: string, text: string): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true });
  const draft = `${file}.${process.pid}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    await writeFile(draft, text, { mode: 0o600, flag: 'wx', flush: true });
    await link(draft, file);
    // Secrets that are sealed under this key may survive a loss of power in Redis, so the key must be on the disk before it is used.
    await using directory = await open(path.dirname(file), 'r');
    await directory.sync();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    await rm(draft, { force: true });
  }
}

const ALGORITHM = 'aes-256-gcm';
/** Length that NIST SP 800-38D recommends. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** The owner of a value; a value sealed for one owner does not open for another. */
export interface Owner {
  readonly tenant: string;
  readonly name: string;
}

/** Seals a value for storage: `<id of the master key>.<nonce, text, tag in base64url>`. */
export function seal({ id, key }: MasterKey, owner: Owner, value: string): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES }).setAAD(additionalData(owner));
  const text = Buffer.concat([cipher.update(value, 'utf8'), cipher.final()]);
  return `${id}.${Buffer.concat([nonce, text, cipher.getAuthTag()]).toString('base64url')}`;
}

/** Opens a sealed value. Throws when its key is unknown or the value belongs to another owner. */
export async function unseal(keys: MasterKeys, owner: Owner, sealed: string): Promise<string> {
  const at = sealed.indexOf('.');
  const id = sealed.slice(0, Math.max(0, at));
  const bytes = Buffer.from(sealed.slice(at + 1), 'base64url');
  const key = await keys.byId(id);
  if (key === null) throw new Error(`it is sealed under the master key ${id}, which is not known here`);
  if (bytes.length < NONCE_BYTES + TAG_BYTES) throw new Error('the stored value is too short');
  const decipher = createDecipheriv(ALGORITHM, key.key, bytes.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES })
    .setAAD(additionalData(owner))
    .setAuthTag(bytes.subarray(-TAG_BYTES));
  const text = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
  return Buffer.concat([text, decipher.final()]).toString('utf8');
}

/** Neither name contains a NUL, so the fields are unambiguous. */
function additionalData({ tenant, name }: Owner): Buffer {
  return Buffer.from(`pie-secret\0${tenant}\0${name}`);
}

/** The parts of the scheduler that describe the other machines. */
interface SchedulerParts {
  readonly store: Store;
  readonly machines: { list(): Promise<readonly { readonly name: string; readonly alive: boolean }[]> };
}

/** Id of the master key of the other machines that run now; null when none runs, or none has stored the id of its key. */
export async function keyOfOthers({ store, machines }: SchedulerParts, machine: string): Promise<string | null> {
  const hasOthers = (await machines.list()).some(({ alive, name }) => alive && name !== machine);
  return hasOthers ? await store.call((redis) => redis.get(store.keys.masterKey)) : null;
}

/**
 * Checks that this gateway has the master key of the other machines, and stores the id of this gateway's first key for
 * them. During a rotation, the gateway may seal under another key than the other machines, as long as it also has their key.
 * @throws when other machines use a key that this machine lacks
 */
export async function agreeOnMasterKey(shared: SchedulerParts, masterKeys: MasterKeys, machine: string): Promise<void> {
  const { id } = await masterKeys.first();
  const { store } = shared;
  const storedId = await store.call((redis) => redis.set(store.keys.masterKey, id, 'NX', 'GET'));
  if (storedId === null || storedId === id) return;
  await assertMasterKey(shared, masterKeys, machine);
  await store.call((redis) => redis.set(store.keys.masterKey, id));
}

/** @throws when other machines use a master key that this machine lacks */
export async function assertMasterKey(shared: SchedulerParts, masterKeys: MasterKeys, machine: string): Promise<void> {
  const id = await keyOfOthers(shared, machine);
  if (id === null || (await masterKeys.byId(id)) !== null) return;
  throw new Error(
    `The machine ${machine} lacks the master key ${id}, under which the other machines seal secrets. ` +
      'Copy master.key from the home of another machine to the home of this one (mode 0600), or give all of them the same PIE_MASTER_KEY.',
  );
}

/** Tenants queried at once. */
const BATCH = 100;

/** Looks up versions with a sealed environment. */
interface StoredVersions {
  runnableVersions(tenant: string): Promise<readonly FunctionVersion[]>;
}

/**
 * The id of a master key under which a tenant's secret, a webhook secret or a value of a function's environment is
 * sealed; null when Redis holds no sealed value. A sealed value begins with the id of its master key, see `seal`.
 */
export async function sealedUnder(store: Store, functions: StoredVersions): Promise<string | null> {
  const { keys } = store;
  const tenants = await store.call((redis) => redis.smembers(keys.tenants));
  for (let i = 0; i < tenants.length; i += BATCH) {
    const sealedValues = await store.call((redis) =>
      Promise.all(
        tenants.slice(i, i + BATCH).map(async (tenant) => {
          const [[, secretValue], webhookSecret] = await Promise.all([
            redis.hrandfield(keys.secretValues(tenant), 1, 'WITHVALUES') as Promise<string[]>,
            redis.get(keys.webhookSecret(tenant)),
          ]);
          return secretValue ?? webhookSecret ?? '';
        }),
      ),
    );
    const sealed = sealedValues.find((value) => value !== '');
    if (sealed !== undefined) return keyOf(sealed);
  }
  for (const tenant of tenants) {
    for (const { environment = {} } of await functions.runnableVersions(tenant)) {
      const [sealed] = Object.values(environment);
      if (sealed !== undefined) return keyOf(sealed);
    }
  }
  return null;
}

const keyOf = (sealed: string): string => sealed.slice(0, sealed.indexOf('.'));
