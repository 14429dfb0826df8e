/**
 * A family is a root invocation and its children. The scheduler admits only the root, with one limit for the whole
 * family, so the pages of all members count together.
 */
export interface FamilyName {
  readonly name: string;
  /** Attempt of the root invocation. Each attempt is a family of its own, so that pages of an earlier one do not count. */
  readonly epoch: number;
  /** Maximum sum of the members' distinct pages: a page that two members hold counts twice. */
  readonly maxPages: number;
}

/** The holdings of a family on one model. */
export interface Family extends FamilyName {
  heldPages: number;
  members: number;
}

/** The families that have members on one model. */
export class Families {
  /** Families by name and epoch. */
  readonly #families = new Map<string, Family>();

  get size(): number {
    return this.#families.size;
  }

  /** Adds a member to the family of that name and returns the family. */
  join({ name, epoch, maxPages }: FamilyName): Family {
    const key = keyOf(name, epoch);
    let family = this.#families.get(key);
    if (!family) {
      family = { name, epoch, maxPages, heldPages: 0, members: 0 };
      this.#families.set(key, family);
    }
    family.members++;
    return family;
  }

  /** Removes a member that held `pages`. */
  leave(family: Family, pages: number): void {
    family.heldPages -= pages;
    if (--family.members === 0) this.#families.delete(keyOf(family.name, family.epoch));
  }
}

const keyOf = (name: string, epoch: number): string => `${epoch} ${name}`;
