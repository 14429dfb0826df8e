/** Whose pages are counted together with those of others: an invocation and its children, of which only the first was admitted. */
export interface FamilyName {
  readonly name: string;
  /** Which attempt of the first it is: what an earlier one held is nothing of this one's. */
  readonly epoch: number;
  /** Most distinct pages of all its members together, those that two of them hold counted twice. */
  readonly maxPages: number;
}

/** What the members of one family hold on one model. */
export interface Family extends FamilyName {
  held: number;
  members: number;
}

/** The families that have members on one model. */
export class Families {
  /** By name and epoch. */
  readonly #families = new Map<string, Family>();

  get size(): number {
    return this.#families.size;
  }

  /** The family of that name, with a member more. */
  join({ name, epoch, maxPages }: FamilyName): Family {
    const key = keyOf(name, epoch);
    let family = this.#families.get(key);
    if (!family) {
      family = { name, epoch, maxPages, held: 0, members: 0 };
      this.#families.set(key, family);
    }
    family.members++;
    return family;
  }

  /** A member that held `pages` is none any more. */
  leave(family: Family, pages: number): void {
    family.held -= pages;
    if (--family.members === 0) this.#families.delete(keyOf(family.name, family.epoch));
  }
}

const keyOf = (name: string, epoch: number): string => `${epoch} ${name}`;
