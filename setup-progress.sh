#!/bin/sh
# sh setup-progress.sh VENV COMMAND...   runs pip or uv, which installs into VENV, and says how far it is
#
# Called by setup.sh and setup-engines.sh. What the installer prints, hundreds of lines, goes to VENV/install.log. A
# terminal sees one line that moves, anything else a line each half minute; a failure shows the log's end.
set -eu
venv=$1
shift
log=$venv/install.log
started=$(date +%s)

installed() { find "$venv"/lib/python3*/site-packages -maxdepth 1 -name '*.dist-info' | wc -l; }
before=$(installed)

so_far() { # pip is silent while it installs what it has found: then, the packages that are there count
    awk -v there=$(($(installed) - before)) -v seconds=$(($(date +%s) - started)) '
        /^ *(Collecting|Processing) / { found++ }
        /^ *(Collecting|Processing|Downloading|Downloaded|Building|Preparing|Resolved|Prepared|WARNING: Retrying) / {
            sub(/^ */, ""); doing = $0
        }
        /^Installing collected packages: / { total = NF - 3 }
        END {
            text = total ? there " of " total " packages installed" : (found ? found " packages found. " : "") doing
            print substr(seconds " s: " text, 1, 78)
        }' "$log"
}

watch() {
    while sleep 1 && kill -0 $$ 2>/dev/null; do # ends with the script, however that ends
        seconds=$(($(date +%s) - started))
        if [ -t 1 ]; then
            printf '\r\033[K%s' "$(so_far)"
        elif [ $seconds -ge $((said + 30)) ]; then
            said=$seconds
            so_far
        fi
    done
}

: >"$log"
said=0
watch &
watcher=$!
status=0
"$@" >>"$log" 2>&1 || status=$?
kill $watcher
if [ -t 1 ]; then printf '\r\033[K'; fi
if [ $status != 0 ]; then
    tail -n 20 "$log" >&2
    echo "The installation failed; all that it said is in $log." >&2
fi
exit $status
