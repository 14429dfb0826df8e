import { createHash, createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';

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
 * environment, so that child processes do not inherit it.
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
