/** Days between which a job ended, in the viewer's zone; the address has them. */
import { choose } from "../../lists/Pager";
import { useWord } from "../../router";
import { endOfDay, startOfDay } from "../../text/human";

interface Days {
  query: { ended_since: number | null; ended_until: number | null };
  isAny: boolean;
}

export function useDays(): Days {
  const [from] = useWord("from");
  const [to] = useWord("to");
  const query = { ended_since: startOfDay(from), ended_until: endOfDay(to) };
  return { query, isAny: query.ended_since !== null || query.ended_until !== null };
}

export function DayField({ name, label }: { name: "from" | "to"; label: string }) {
  const [word] = useWord(name);
  return (
    <label class="day">
      {label}{" "}
      <input
        type="date"
        value={startOfDay(word) === null ? "" : word!}
        onChange={(event) => choose(name, event.currentTarget.value || null, "page")}
      />
    </label>
  );
}
