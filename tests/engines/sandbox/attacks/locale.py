"""Changes the locale, the decimal context, the time zone and the limits of the interpreter."""

KIND = "call"
import decimal
import locale
import os
import sys
import time

for name in locale.locale_alias.values():
    try:
        locale.setlocale(locale.LC_ALL, name)
        break
    except locale.Error:
        pass
os.environ["TZ"] = ":/etc/passwd"
time.tzset()
decimal.getcontext().prec = 1
sys.set_int_max_str_digits(0)
sys.setswitchinterval(1e6)


def add(a, b):
    return decimal.Decimal(a) if isinstance(a, int) else None
