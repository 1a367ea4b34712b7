t="$1.$$"; from=
for d in "$0/.workspaced" /tmp /dev/shm; do
mkdir -p "$d" 2>/dev/null; (: > "$d/$t") 2>/dev/null || continue
cat ${from:+"$from"} > "$d/$t" && chmod 700 "$d/$t" || exit 1
if [ -x "$d/$t" ]; then mv -f "$d/$t" "$d/$1" && rm -f ${from:+"$from"}; exit; fi
from="$d/$t"
done
echo "no folder here can be written and has programs: tried $0, /tmp and /dev/shm" >&2
exit 1
