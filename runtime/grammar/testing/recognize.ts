import { codePoint } from '../translate/characters.ts';
import { type Definitions, type Expression, sequence, text as textOf } from '../translate/expression.ts';

/**
 * Returns true if a grammar matches a whole text. Tests use this direct implementation of the definition as their oracle. It computes, for every
 * rule and position, the positions where a match may end. The computation is a least fixed point, so left recursion terminates.
 */
export function recognizes({ root, rules }: Definitions, text: string): boolean {
  const characters = [...text];
  const ends = new Map<string, Set<number>>();
  let changed = true;

  const endsOf = (expression: Expression, at: number): Set<number> => {
    switch (expression.kind) {
      case 'text': {
        const units = [...expression.text];
        return new Set(units.every((unit, index) => characters[at + index] === unit) ? [at + units.length] : []);
      }
      case 'class': {
        const code = characters[at] === undefined ? -1 : codePoint(characters[at]);
        return new Set(expression.set.some(([from, to]) => code >= from && code <= to) ? [at + 1] : []);
      }
      case 'sequence':
        return expression.parts.reduce(
          (positions, part) => unionOver(positions, (position) => endsOf(part, position)),
          new Set([at]),
        );
      case 'choice':
        return new Set(expression.options.flatMap((option) => [...endsOf(option, at)]));
      case 'repeat': {
        const found = new Set<number>(expression.min === 0 ? [at] : []);
        let positions = new Set([at]);
        const seen = new Set<string>();
        for (let count = 1; count <= expression.max && positions.size > 0; count += 1) {
          positions = unionOver(positions, (position) => endsOf(expression.body, position));
          if (count >= expression.min) for (const position of positions) found.add(position);
          // Positions that occurred before lead to no new ends, so even an unbounded repetition terminates.
          const key = [...positions].sort().join();
          if (count > expression.min && seen.has(key)) break;
          seen.add(key);
        }
        return found;
      }
      case 'language': {
        const found = new Set<number>();
        for (let end = at + 1; end <= characters.length; end += 1) {
          if (expression.language.isString && characters[end - 1] !== '"') continue;
          if (recognizes(expression.language, characters.slice(at, end).join(''))) found.add(end);
        }
        return found;
      }
      case 'members': {
        const { named, isOrdered, other, needsOther, least, most, separator } = expression.members;
        const found = new Set<number>();
        const seen = new Set<string>();
        const visit = (position: number, written: readonly number[], count: number, hasOther: boolean): void => {
          const key = `${position} ${written.toSorted()} ${count} ${hasOther}`;
          if (seen.has(key)) return;
          seen.add(key);
          const isComplete = named.every(({ isRequired }, index) => !isRequired || written.includes(index));
          if (isComplete && count >= least && (hasOther || !needsOther)) found.add(position);
          if (count >= most) return;
          for (const begin of count === 0 ? [position] : endsOf(separator, position)) {
            for (const [index, member] of named.entries()) {
              const skipped = named.slice((written.at(-1) ?? -1) + 1, index);
              if (isOrdered && (index <= (written.at(-1) ?? -1) || skipped.some(({ isRequired }) => isRequired)))
                continue;
              if (written.includes(index)) continue;
              const rest = sequence([textOf(member.key), member.value]);
              for (const end of endsOf(rest, begin)) visit(end, [...written, index], count + 1, hasOther);
            }
            const writtenAfter = isOrdered ? named.map((_, index) => index) : written;
            if (other && (!isOrdered || isComplete))
              for (const end of endsOf(other, begin)) visit(end, writtenAfter, count + 1, true);
          }
        };
        visit(at, [], 0, false);
        return found;
      }
      case 'rule': {
        const key = `${expression.name} ${at}`;
        const known = ends.get(key);
        if (known) return known;
        ends.set(key, new Set());
        changed = true;
        return new Set();
      }
    }
  };

  endsOf({ kind: 'rule', name: root }, 0);
  while (changed) {
    changed = false;
    for (const [key, known] of ends) {
      const space = key.lastIndexOf(' ');
      const definition = rules.get(key.slice(0, space));
      if (!definition) continue;
      for (const end of endsOf(definition, Number(key.slice(space + 1)))) {
        if (!known.has(end)) changed = true;
        known.add(end);
      }
    }
  }
  return ends.get(`${root} 0`)?.has(characters.length) ?? false;
}

function unionOver(positions: ReadonlySet<number>, next: (position: number) => Iterable<number>): Set<number> {
  return new Set([...positions].flatMap((position) => [...next(position)]));
}
